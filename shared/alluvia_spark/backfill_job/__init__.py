"""The backfill job: how a folder of events becomes rows of a table."""
