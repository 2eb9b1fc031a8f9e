"""Statistics of data files: computed, read from the log or from Parquet footers, and compared."""
