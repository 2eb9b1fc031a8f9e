"""Sources of webhooks: their definitions in a lake, and the meaning of their requests."""
