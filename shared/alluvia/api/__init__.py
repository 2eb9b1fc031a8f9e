"""The public API: a lake, its tables, branches, streams, tags and transactions."""
