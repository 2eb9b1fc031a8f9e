"""Who may do what with a lake: rights, the tokens that carry them, and the keys that sign tokens."""
