"""The commands, a module each; each is loaded when it runs."""
