"""Uploaded files, whole or in parts, and external tables."""
