"""Writing DataFrames, and changing rows with Spark's tasks."""
