"""DuckDB's errors in our terms, without paths of the host, addresses or secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from alluvia.errors import AlluviaError, Corrupt, Invalid, Unavailable

LINE_LENGTH_MAX = 100
_CUT_OFF = "Could not read enough bytes"
_BROKEN_METADATA = "Invalid"
"""The kind of error under which DuckDB passes on those of Thrift, in which Parquet's metadata stands."""


class QueryTooCostly(Invalid):
    """The query is sound, but takes more time or memory, or gives a bigger result, than is allowed."""


class UnreadableFile(Corrupt):
    """DuckDB cannot read a data file; `path` is its name in the table, None where DuckDB does not say which it is."""

    def __init__(self, path: str | None) -> None:
        super().__init__(f"the data file {path} cannot be read as Parquet" if path else "a data file is damaged")
        self.path = path


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the query when DuckDB fails on it.

    `text` is what the user wrote and `position` maps a byte offset of the text that DuckDB ran to one of it; `files`
    maps what DuckDB calls a file to what the user may know it as; `hidden` are other texts that must not be shown.
    """

    text: str
    position: Callable[[int], int] = lambda position: position
    files: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None


def query_error(kind: str, message: str, text: str, position: int | None) -> Invalid:
    """Return DuckDB's message with the line that it is about, marked."""
    where = "" if position is None else _mark(text.encode(), position)
    return Invalid(f"{kind} Error: {message}{where}")


def _mark(text: bytes, position: int) -> str:
    if not 0 <= position <= len(text):
        return ""
    start = text.rfind(b"\n", 0, position) + 1
    end = text.find(b"\n", position)
    line = text[start : end if end >= 0 else len(text)].decode(errors="replace")
    column = len(text[start:position].decode(errors="replace"))
    cut = max(0, column - LINE_LENGTH_MAX // 2)
    shown = ("..." if cut else "") + line[cut : cut + LINE_LENGTH_MAX]
    number = text.count(b"\n", 0, start) + 1
    label = f"LINE {number}: "
    return f"\n\n{label}{shown}\n{' ' * (len(label) + column - cut + (3 if cut else 0))}^"


def translate(error: Exception, context: Context) -> AlluviaError:
    """Return our error for one that DuckDB raised while it ran a query."""
    details = _details(error)
    kind, message = details.get("exception_type", "DuckDB"), details.get("exception_message", "")
    if kind == "INTERRUPT":
        return QueryTooCostly("the query was interrupted")
    if kind == "Out of Memory":
        return QueryTooCostly(_out_of_memory(context))
    file = next((shown for url, shown in context.files.items() if url in message), None)
    if kind in ("HTTP", "IO") and _CUT_OFF not in message:
        return Unavailable(f"the store did not serve {f'the data file {file}' if file else 'a data file'}: try again")
    if file is not None or _CUT_OFF in message or kind == _BROKEN_METADATA:
        return UnreadableFile(file)
    if kind in ("INTERNAL", "FATAL"):
        return Invalid("DuckDB cannot run this query (an internal error of the engine): write it another way")
    for hidden in context.hidden:
        message = message.replace(hidden, "…")
    position = details.get("position")
    at = context.position(int(position)) if position is not None and position.isdigit() else None
    return query_error(kind, message, context.text, at)


def _out_of_memory(context: Context) -> str:
    limit = context.memory_limit_bytes
    allowed = "is allowed" if limit is None else f"the {limit // 1_000_000} MB allowed"
    return f"the query needs more memory than {allowed}: select fewer rows or columns, or group by fewer values"


def _details(error: Exception) -> dict[str, str]:
    """Return the fields of an error raised with `errors_as_json`, which a stream wraps once more."""
    text = str(error)
    try:
        found = json.loads(text[text.index("{") :])
    except ValueError:
        return {"exception_message": text.splitlines()[0] if text else type(error).__name__}
    return {str(key): str(value) for key, value in found.items()}
