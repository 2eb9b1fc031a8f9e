"""Retention: rows that expire, files without references, and old parts of the log."""
