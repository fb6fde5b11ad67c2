"""Environments that ship with Rayfine, each in the form that a user would write it."""
