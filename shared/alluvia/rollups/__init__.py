"""Rollups: tables that are kept up to date with a query over another table."""
