"""Transactions over several tables, and a lake as it was at a moment."""
