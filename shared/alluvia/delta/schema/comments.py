"""Comments of tables and columns, where Delta keeps them. Pure.

A table's is the `description` of its metaData, a column's the entry `comment` of its metadata in the `schemaString`.
Source: Delta protocol, "Change Metadata" and "Schema Serialization Format"; other engines read and write both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from alluvia.errors import Invalid

COMMENT = "comment"
"""The entry of a field's metadata, in Delta and in Arrow schemas that new columns come from."""
CHARS_MAX = 32_768


def check_comment(text: object, of: str = "") -> str | None:
    """Return a comment; None for none, and for an empty one. Raises `Invalid`, naming `of`, if no log can hold it."""
    if text is None or text == "":
        return None
    what = f"comment of {of}" if of else "comment"
    if not isinstance(text, str) or len(text) > CHARS_MAX:
        shown = f"{len(text):,} characters" if isinstance(text, str) else f"{text!r:.100}"
        raise Invalid(f"{what}: expected text of at most {CHARS_MAX:,} characters, got {shown}")
    if "\0" in text:
        raise Invalid(f"{what}: remove the NUL character, which SQL cannot show")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{what}: {text[error.start]!r} is half of a character: leave it out") from error
    return text


def given_comment(metadata: Mapping[bytes, bytes] | None, column: str) -> str | None:
    """Return the comment that the metadata of an Arrow field gives a new column. Raises `Invalid`."""
    data, of = (metadata or {}).get(COMMENT.encode(), b""), f"column {column}"
    try:
        return check_comment(data.decode(), of)
    except UnicodeDecodeError as error:
        raise Invalid(f"comment of {of}: expected UTF-8, got {data!r:.100}") from error


def comment_of(field: Mapping[str, Any]) -> str | None:
    """Return the comment of a field of a `schemaString`."""
    text = _metadata(field).get(COMMENT)
    return text if isinstance(text, str) and text else None


def column_comments(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the comments of the fields of a `schemaString` that have one, by name."""
    comments = ((str(field.get("name")), comment_of(field)) for field in fields)
    return {name: text for name, text in comments if text is not None}


def with_comment(field: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """Return a field of a `schemaString` with another comment, or without one."""
    metadata = {name: value for name, value in _metadata(field).items() if name != COMMENT}
    return {**field, "metadata": metadata if text is None else {**metadata, COMMENT: text}}


def _metadata(field: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = field.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
