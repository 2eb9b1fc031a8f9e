"""DataFrames of tables: Spark's Parquet reader on the files that pruning leaves."""
