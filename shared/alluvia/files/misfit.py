"""Why a file's rows are refused."""

from __future__ import annotations

from alluvia.errors import Invalid


class Misfit(Invalid):
    """A file does not fit its table, or no type: the message names the row, the column and the kind of the value."""


def misfit(row: int, column: str, reason: str) -> Misfit:
    """Return the error for a value. `row` counts the file's rows from 1, without a header."""
    return Misfit(f"row {row}, column {column}: {reason}")
