"""Worker processes: started in advance, watched, and killed at a limit."""
