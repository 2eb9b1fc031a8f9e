"""Mutants of the library, by the part that they break."""
