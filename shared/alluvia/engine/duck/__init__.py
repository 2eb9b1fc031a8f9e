"""The adapter to DuckDB: databases, views over data files, values, and errors."""
