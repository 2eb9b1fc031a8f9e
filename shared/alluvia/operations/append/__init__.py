"""Append rows, events, and data files that other processes have written."""
