"""Access to a lake: rights, the tokens that carry them, and the keys that sign tokens."""
