"""Formats of request bodies that contain events."""
