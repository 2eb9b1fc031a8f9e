"""Commits to tables: handles, transactions, conflicts, and transactions over several tables."""
