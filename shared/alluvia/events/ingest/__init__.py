"""Ingestion: events become rows or rejects, and each is stored once."""
