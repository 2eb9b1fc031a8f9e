"""Data files: how rows are laid out in them, written and read."""
