"""Conditions and values as text: what they mean, which files they rule out, and how DuckDB computes them."""
