"""SQL over a lake: one SELECT, run by DuckDB over our own snapshots, confined to the files that it needs."""
