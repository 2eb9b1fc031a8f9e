"""Back up a lake: copy all tables as they are at one moment to another place, where they are a lake again."""
