"""Back up a lake: copy all tables of one moment to another place, as a lake."""
