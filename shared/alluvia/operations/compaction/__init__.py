"""Optimize: small files become few sorted ones; and compactions undone."""
