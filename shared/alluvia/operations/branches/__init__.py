"""Branches: their changes, compared and published, and their tables in queries on the lake."""
