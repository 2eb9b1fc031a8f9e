"""Create, drop, change, convert, attach, clone and restore tables."""
