"""The tables of a lake, for operations: handles, a snapshot of several tables, views, and batches of requests."""
