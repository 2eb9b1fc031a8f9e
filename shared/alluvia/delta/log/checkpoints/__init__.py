"""Checkpoints of the log, classic and v2: read, built and written."""
