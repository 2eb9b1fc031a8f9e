"""Streams: positions in the changes of tables."""
