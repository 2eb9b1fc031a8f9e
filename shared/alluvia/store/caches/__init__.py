"""Bytes of objects that never change, kept on disk or in memory, and served to DuckDB as files."""
