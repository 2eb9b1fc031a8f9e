"""The Delta log: actions, commits, replay, and the objects that hold them."""
