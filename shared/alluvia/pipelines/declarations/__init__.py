"""Declarations of derived tables: read from SQL and Python, checked, and as a table of the lake keeps them."""
