"""DuckDB: its one adapter, conditions on rows, and the text of queries."""
