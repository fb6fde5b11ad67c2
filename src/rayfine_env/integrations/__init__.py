"""Rayfine's environments as other libraries know them: one file for each."""
