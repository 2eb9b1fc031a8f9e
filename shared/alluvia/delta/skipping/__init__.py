"""Data skipping: which files can contain rows that match a predicate."""
