"""What a notebook shows of a lake, a table or a snapshot, as HTML. All text is escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(title: str, summary: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a title, a line under it, and rows below the names of their columns."""
    from html import escape  # loads 2,000 names of characters

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row)}</tr>" for row in rows)
    return (
        f"<p><b>{escape(title)}</b><br>{escape(summary)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
