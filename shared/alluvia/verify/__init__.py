"""Verifying a table: whether its log, checkpoints and files are correct. Nothing is written or deleted."""
