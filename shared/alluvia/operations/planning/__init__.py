"""Shared parts of plans: rules of tables, retries after a lost race, and marks of applications."""
