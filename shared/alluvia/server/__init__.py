"""The local server: HTTP in front of the functions' handlers, with merge and vacuum in the background."""
