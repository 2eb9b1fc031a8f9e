"""Verifying a table: whether its log, its checkpoints and its files say the truth. Nothing is written or deleted."""
