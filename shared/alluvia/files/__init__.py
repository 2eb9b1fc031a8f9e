"""The one reader of CSV, TSV, NDJSON, JSON and Parquet files, and files of events."""
