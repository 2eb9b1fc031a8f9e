"""File actions of a table by the hundred thousand: as columns, from commits, checkpoints and sidecars."""
