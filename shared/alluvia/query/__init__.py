"""SQL over a lake: one SELECT, run by DuckDB over our snapshots, with access only to the files that it needs."""
