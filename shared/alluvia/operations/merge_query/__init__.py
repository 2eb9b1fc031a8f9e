"""Merge queries: checked when they are declared, and run over rows."""
