"""Schemas: Delta's types and Arrow's, names, column mapping, and rows converted to a table's columns."""
