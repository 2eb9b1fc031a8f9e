"""Queries of derived tables: their parts, their sources, and the columns of a source that a result follows."""
