"""Events of the same shape, read and stored as columns."""
