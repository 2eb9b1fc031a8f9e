"""Partitioning: transforms of columns, the files that rows go to, and partition values as text."""
