"""Its server side."""
