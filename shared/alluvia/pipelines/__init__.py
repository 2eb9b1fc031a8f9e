"""Pipelines: tables declared as queries over other tables, and the runs that keep them up to date."""
