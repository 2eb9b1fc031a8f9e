"""What the command line prints and reads: tables, progress, prompts."""
