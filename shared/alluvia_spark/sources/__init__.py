"""Files that a job reads: where they are, what their names say, and their lines."""
