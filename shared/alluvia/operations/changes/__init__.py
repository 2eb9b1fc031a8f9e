"""The change feed: which rows commits inserted and deleted."""
