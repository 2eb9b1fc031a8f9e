"""Deletion vectors: which rows of a data file are deleted."""
