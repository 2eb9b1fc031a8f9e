"""Erase rows from every version of a table, and search all of its objects for traces of them."""
