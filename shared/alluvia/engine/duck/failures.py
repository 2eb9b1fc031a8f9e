"""Translate DuckDB's errors to ours, without paths of the host, addresses or secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from errno import ENOSPC

from alluvia.delta.schema.nesting import NOT_FOR_SQL
from alluvia.errors import MESSAGE_CHARS_MAX, AlluviaError, Corrupt, Invalid, Unavailable, Unsupported, cut
from alluvia.lazy_dataclasses import dataclass

UNREAD = "alluvia has to read this value of a promoted field itself"
"""DuckDB's message where an expression leaves a value to this library (`promoted_sql`)."""
_COMPUTED = re.compile(
    r"Overflow in (?P<done>addition|subtraction|multiplication|division|negation)"
    r"(?: of (?P<kind>[A-Z]+)(?P<size>[0-9]+|\([0-9]+\)))?(?: of)? ?\(?(?P<terms>-?[0-9]+ (?:\+|-|\*|/) -?[0-9]+)?"
)
_SUMMED = re.compile(r"Overflow in HUGEINT \w+")
_ABSOLUTE = re.compile(r"Overflow on (abs\(-[0-9]+\))")
_NAMES = {"8": "TINYINT", "16": "SMALLINT", "32": "INTEGER", "64": "BIGINT", "128": "HUGEINT"}
_WIDER = {"8": "SMALLINT", "16": "INTEGER", "32": "BIGINT", "64": "HUGEINT"}
_DIGITS_MAX = 38
_TO_ANY = "cast what it is computed from to a wider type"
_TO_DOUBLE = "no wider type is exact: cast what it is computed from to DOUBLE"


def overflow_reason(message: str) -> str | None:
    """Return what overflowed and the remedy, from the message of an Out of Range error; None if it says another thing.

    It shows the numbers, except those of decimals, which DuckDB has without their points.
    """
    if _SUMMED.match(message):
        return f"a sum or product does not fit HUGEINT or DECIMAL(38): {_TO_DOUBLE}"
    absolute = _ABSOLUTE.match(message)
    if absolute is not None:
        return f"{absolute[1]} does not fit its type: {_TO_ANY}"
    match = _COMPUTED.match(message)
    if match is None:
        return None
    size, terms = (match["size"] or "").strip("()"), match["terms"]
    computed = f"the result of the {match['done']}"
    if match["kind"] == "DECIMAL":
        wider = "DECIMAL(38, …)" if int(size) < _DIGITS_MAX else None
        return f"{computed} does not fit DECIMAL({size}): {_cast_to(wider)}"
    if size not in _NAMES:
        return f"{terms or computed} does not fit its type: {_TO_ANY}"
    unsigned = "U" if match["kind"] == "UINT" else ""
    wider = "BIGINT" if unsigned and match["done"] == "subtraction" else _WIDER.get(size)
    return f"{terms or computed} does not fit {unsigned}{_NAMES[size]}: {_cast_to(wider)}"


def _cast_to(wider: str | None) -> str:
    return _TO_DOUBLE if wider is None else f"cast what it is computed from to a wider type, such as {wider}"


LINE_LENGTH_MAX = 100
_CUT_OFF = "Could not read enough bytes"
_KIND = re.compile(r"([A-Za-z][A-Za-z ]*?) Error: ")
_STREAM = "Invalid Input Error: Attempting to execute an unsuccessful or closed pending query result\nError: "
_NO_ARROW_TYPE = re.compile(r"Unsupported Arrow type (\w+)")
_TOO_DEEP = "Recursion level in ArrowSchema"
"""Arrow takes types of 64 levels."""
_UNCONVERTED = re.compile(r"(Could not convert string '.{40}).{21,}(' to )", re.DOTALL)
"""A message with a value that no type takes. The start of the value identifies it; a whole event is too long."""
_OF_BYTES = re.compile(
    r"(No function matches the given name and argument types '[^\n]*\bBLOB\b[^\n]*?'\.)[^\n]*", re.DOTALL
)
_DECODE = r"\1 Text that is stored as bytes, such as raw of rejects, is decode(raw): decode(raw) LIKE '%x%'"
_TO_SET = re.compile(r'\s*Use "SET [^"]*" to [^\n]*')
"""Advice to set what cannot be set here."""
_NO_KIND = "DuckDB"
"""Stands for the kind of an error that names none: one of Thrift, in which Parquet's metadata stands, or a user's."""
INTERRUPT = "INTERRUPT"
_WHILE_READ = ("Conversion", "Invalid Input", "Out of Memory", "Out of Range", INTERRUPT)
"""The kinds of errors that are believed without DuckDB's word in front, which is missing once rows have been read.

A query whose author writes one into it gets an answer that it could get anyway.
"""
_STORE = ("IO",)
"""The kind of errors about reading files, which no query can raise of its own."""
_DISK_FULL = str(ENOSPC)
"""DuckDB's `errno` in such an error: it wrote, and read no file of the store. It is believed without its word in front.
"""
ENGINE_FAILED = "DuckDB cannot run this query (an internal error of the engine): write it another way"


class QueryTooCostly(Invalid):
    """The query is sound, but takes more time, memory or disk, or gives a bigger result, than is allowed."""

    at_limit = True


class QueryStopped(Invalid):
    """The query was cancelled while it ran."""


class ResultTooLarge(QueryTooCostly):
    """The result has more bytes than is allowed."""


class EngineError(Exception):
    """DuckDB, or the reading of its rows, failed: `details` are the fields of its error.

    `step` is the number of the failed statement among those sent before the request; None for the request itself.
    """

    def __init__(self, details: Mapping[str, str], step: int | None = None) -> None:
        super().__init__(details.get("exception_message", ""))
        self.details = details
        self.step = step


class UnservedFile(EngineError):
    """DuckDB could not be given a file, by its `name`: it is `missing`, `changed`, too `short`, or was `refused`."""

    def __init__(self, name: str, why: str, step: int | None = None) -> None:
        super().__init__({"exception_type": "IO", "exception_message": name}, step)
        self.name = name
        self.why = why


class UnreadableFile(Corrupt):
    """DuckDB seems not to be able to read a data file: only opening it tells.

    `path` is its name in the table, None where DuckDB does not say which it is; `otherwise` is the error if no file
    turns out to be damaged, since a query can fail with words of its own.
    """

    def __init__(self, path: str | None, otherwise: AlluviaError) -> None:
        super().__init__(f"the data file {path} cannot be read as Parquet" if path else "a data file is damaged")
        self.path = path
        self.otherwise = otherwise


class UnreadField(UnreadableFile):
    """DuckDB has met a value of `properties` that only this library reads."""

    def __init__(self, otherwise: AlluviaError) -> None:
        super().__init__(UNREAD, otherwise)
        message = "the query met a value in properties that only this library reads, when it had sent rows already"
        instead = "move the promoted fields to their columns in all files (evolve --backfill), or read it with scan"
        self.args = (f"{message}: {instead}",)


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
    return Invalid(f"{kind} Error: {cut(message)}{where}")


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


def translate(details: Mapping[str, str], context: Context) -> AlluviaError:
    """Return our error for one that DuckDB raised while it ran a query, by its fields (see `details_of`)."""
    kind, message = details.get("exception_type", _NO_KIND), details.get("exception_message", "")
    if (typed := _NO_ARROW_TYPE.search(message)) is not None:
        return Invalid(
            f"the result holds a value of the type {typed[1]}, which cannot be sent: cast it, for example to VARCHAR"
        )
    if _TOO_DEEP in message:
        return Invalid("a column of the result is nested too deeply to be sent: flatten it, or cast it to JSON")
    if message.endswith(NOT_FOR_SQL):
        return Unsupported(message)
    if message == UNREAD:
        return UnreadField(query_error(kind, message, context.text, None))
    message = _OF_BYTES.sub(_DECODE, message)
    message = _UNCONVERTED.sub(r"\1…\2", _TO_SET.sub("", message))
    if kind == INTERRUPT:  # which may hide an error of any kind
        return Invalid("the query failed while several threads ran it, and DuckDB does not say why: run it again")
    if kind == "Out of Memory":
        return QueryTooCostly(out_of_memory(context.memory_limit_bytes))
    if kind in _STORE and details.get("errno") == _DISK_FULL:
        return QueryTooCostly(
            "the query does not fit into memory, and needs more disk than there is: "
            "select fewer rows or columns, or group by fewer values"
        )
    file = next((shown for url, shown in context.files.items() if url in message), None)
    if kind in _STORE and _CUT_OFF not in message:
        return Unavailable(f"the store did not serve {f'the data file {file}' if file else 'a data file'}: try again")
    if kind in ("INTERNAL", "FATAL"):
        translated = Invalid(ENGINE_FAILED)
    elif kind == "Out of Range" and (reason := overflow_reason(message)) is not None:
        translated = Invalid(reason)
    else:
        for hidden in context.hidden:
            message = message.replace(hidden, "…")
        position = details.get("position")
        at = context.position(int(position)) if position is not None and position.isdigit() else None
        translated = query_error(kind, _advised(message, context.text), context.text, at)
    may_be_damage = context.files and (file is not None or kind in (*_STORE, _NO_KIND))
    return UnreadableFile(file, translated) if may_be_damage else translated


def _advised(message: str, text: str) -> str:
    from alluvia.engine.queries.foreign_functions import with_advice  # only errors need it

    return with_advice(message, text, _zones() if message.startswith("Unknown TimeZone") else ())


def _zones() -> Iterable[str]:
    import zoneinfo

    return zoneinfo.available_timezones()


def out_of_memory(limit_bytes: int | None) -> str:
    """Say that a query needs too much memory."""
    allowed = "is allowed" if limit_bytes is None else f"the {limit_bytes // 1_000_000} MB allowed"
    return f"the query needs more memory than {allowed}: select fewer rows or columns, or group by fewer values"


def details_of(error: Exception) -> dict[str, str]:
    """Return the fields of an error raised with `errors_as_json`.

    DuckDB passes a message that starts with a brace on as it is, so fields that contradict the kind of error in front
    of them were written by the query's author.
    """
    text = str(error).removeprefix(_STREAM)
    named = _KIND.match(text)
    kind, message = (named[1], text[named.end() :]) if named else (_NO_KIND, text.partition("\n")[0])
    details = {"exception_type": kind, "exception_message": message or type(error).__name__}
    with suppress(ValueError, TypeError, KeyError, RecursionError):  # of a message without fields
        fields = json.loads(message)
        given = fields["exception_type"]
        late = given in _WHILE_READ or (given in _STORE and fields.get("errno") == _DISK_FULL)
        if given == kind or (named is None and late):
            details = {str(key): str(value) for key, value in fields.items()}
    return {key: value[: 2 * MESSAGE_CHARS_MAX] for key, value in details.items()}
