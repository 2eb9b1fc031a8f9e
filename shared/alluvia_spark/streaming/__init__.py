"""Structured Streaming: tables as sinks and sources of streams."""
