"""The process that runs a query with DuckDB: its session, and how it is asked."""
