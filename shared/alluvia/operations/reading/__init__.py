"""Read a table: its rows, one of its data files, its history, and its files as relations for SQL."""
