"""Pipelines: tables declared as queries over other tables, and the runs that keep them up to date."""

from alluvia.pipelines.declarations.python_files import expect, table

__all__ = ["expect", "table"]
