"""The window of event ids: which events a table has stored recently, in memory, in checkpoints and in files."""
