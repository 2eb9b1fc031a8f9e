"""Statements from their tokens. Pure."""
