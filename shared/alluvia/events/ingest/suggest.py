"""Which fields of a table's events could be columns: names, types and coverage, by a sample of the newest events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import chain, islice
from typing import Any, NamedTuple

import pyarrow as pa

from alluvia.commit.event_window.id_runs import EVENT_ID, SOURCE, identity_columns
from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import read_file
from alluvia.delta.log.actions import AddFile
from alluvia.delta.odd_times import UNREADABLE
from alluvia.delta.schema.column_mapping import is_mapped, needs_mapping
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.serialization import schema_string
from alluvia.delta.schema.types import type_name
from alluvia.errors import Invalid, TableNotFound
from alluvia.events.ingest.event_tables import find_events
from alluvia.events.ingest.event_time import unread_time
from alluvia.events.ingest.rejects import read_given
from alluvia.events.ingest.values import OddTime
from alluvia.json_values.convert import column
from alluvia.json_values.instants import TIMESTAMP
from alluvia.json_values.jsontext import ExactNumber, decode_all, describe, encode
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.reading.change_files import FEED_COLUMNS
from alluvia.table_names import REJECTS

SAMPLE = 10_000
FIELDS_MAX = 1000
"""Fields that are counted: events whose fields have names like ids would fill the memory."""
_FILES_MIN, _FILES_MAX = 8, 64
"""How many files a sample comes from, each with a request: several where one would do, so as not to be of a moment."""
_FILES_LOOKED_AT = 10_000
_BYTES_MAX = 256 << 20
_EXAMPLE_CHARS = 60
_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "true or false": (pa.bool_(),),
    "a number": (pa.int64(), pa.float64()),
    "a whole number": (pa.int64(), pa.decimal128(20), pa.decimal128(38), pa.float64()),
    "a string": (pa.date32(), TIMESTAMP, pa.string()),
}
"""The types that are tried for values of a kind, in order: a column gets the first that all of them fit exactly.

20 digits hold every unsigned integer of 64 bits.
"""
_UNREADABLE = (
    "no such time can be read, so another field or the arrival is the event's time: send ISO 8601, such as "
    "2026-11-20T10:00:00Z"
)
_DECLARED = {
    "an object": ("objects with other fields", "struct<field:type>"),
    "an array": ("arrays of other elements", "array<type>"),
}
"""What columns of these kinds refuse, and the types to declare: a sample does not tell what is still to come."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A field without a column. type: that of a column which takes all values of the sample; None if there is none.

    coverage: the share of the sampled events that have the field. events: how many were sampled, which is fewer than
    asked for where the table has fewer, or where the files that may be read hold fewer. example: a value, as JSON.
    """

    field: str
    type: str | None
    coverage: float
    events: int
    example: str
    note: str | None = None


UnreadBySource = Callable[[str, Mapping[str, object]], tuple[str, ...]]
"""Returns the field and the text of the time that a source, by its name, could not read of an event; else ()."""


def suggest(
    catalog: WritableCatalog,
    name: str,
    sample: int = SAMPLE,
    unread_by_source: UnreadBySource = lambda _name, _event: (),
) -> list[Suggestion]:
    """Return the fields without a column of a table's newest events and newest rejects, frequent ones first.

    A table that knows its events by their ids alone cannot get a column `source`. Rejects that are not JSON objects do
    not count. Fields whose times cannot be read come first, without a type. Reads at most 64 files of the table and 64
    of its rejects. Raises `TableNotFound`.
    """
    table = find_events(catalog, name)
    if table is None:
        raise TableNotFound(f"there is no table {name!r}")
    snapshot = table.newest()
    schema = snapshot.schema
    columns = {fold(column) for column in schema.names}
    columns.update(fold(field.key) for field in snapshot.promoted)
    sampled = newest_events(table, sample) if "properties" in columns else []
    place = catalog.handle(f"{name}/{REJECTS}")
    with suppress(TableNotFound):
        sampled += _newest_rejects(place, max(1, sample // 10))
    left_out = {SOURCE} if identity_columns(schema) == (EVENT_ID,) else set()
    events, fields = 0, _Fields(columns, left_out, is_mapped(snapshot.properties))
    odd_times: list[OddTime] = []
    time_path = snapshot.settings.time_field
    for value, one in zip(decode_all([each.text for each in sampled]), sampled, strict=True):
        if isinstance(value, dict):
            events += 1
            fields.add(value)
            unread = one.unread or (unread_by_source(one.source, value) if one.source else ())
            if unread:
                odd_times.append(OddTime(UNREADABLE, *unread))
            elif (one.is_timeless or time_path) and (odd := unread_time(value, time_path)) is not None:
                odd_times.append(odd)
    return [*_of_times(odd_times, events), *fields.suggestions(events)]


def _of_times(odd_times: Sequence[OddTime], events: int) -> list[Suggestion]:
    """Return a suggestion for each field with unreadable times: not a column, but another form of the text."""
    counts = Counter(odd.field for odd in odd_times)
    first = {odd.field: odd.text for odd in reversed(odd_times)}
    return [
        Suggestion(name, None, round(count / events, 4), events, encode(first[name]).decode(), _UNREADABLE)
        for name, count in counts.most_common()
    ]


class _Sampled(NamedTuple):
    """The fields of an event, as JSON, and facts about its time that they lack.

    is_timeless: whether all that could say a time is among the fields. source: the name of its source; "" for none.
    unread: the field and the text of a time that the request should say, and that could not be read; else ().
    """

    text: bytes
    is_timeless: bool
    source: str = ""
    unread: tuple[str, ...] = ()


def newest_events(table: TableHandle, rows: int) -> list[_Sampled]:
    """Return `properties` of events, timeless where the arrival is their time: else the field of their time is gone."""
    names = set(table.newest().schema.names)
    wanted = ["properties", *(name for name in ("ts", "received_at", SOURCE) if name in names)]
    sampled = []
    for values in _newest(table, wanted, rows):
        said = dict(zip(wanted, values, strict=True))
        text, source = said["properties"], said.get(SOURCE)
        timeless = {"ts", "received_at"} <= names and said["ts"] == said["received_at"]
        sampled.append(_Sampled(text.encode() if isinstance(text, str) else b"{}", timeless, source or ""))
    return sampled


def _newest_rejects(rejects: TableHandle, rows: int) -> list[_Sampled]:
    wanted = [name for name in ("raw", "given") if name in rejects.newest().schema.names]
    sampled = []
    for raw, *rest in _newest(rejects, wanted, rows):
        given = read_given(rest[0]).given if rest else None
        is_timeless = given is None or given.ts_us is None
        sampled.append(_Sampled(raw or b"{}", is_timeless, "", given.unread if given is not None else ()))
    return sampled


def _newest(table: TableHandle, names: Sequence[str], rows: int) -> list[tuple[Any, ...]]:
    """Return values of columns, of several of the newest files."""
    snapshot = table.newest()
    schema = pa.schema([snapshot.schema.field(name) for name in names])
    values: list[tuple[Any, ...]] = []
    for file, share in _shares(snapshot.files, rows):
        batches = read_file(snapshot, table.store, file, schema)
        columns = (map(pa.Array.to_pylist, batch.columns) for batch in batches)
        values += islice(chain.from_iterable(zip(*each, strict=True) for each in columns), share)
    return values


def _shares(files: Iterable[AddFile], rows: int) -> list[tuple[AddFile, int]]:
    """Return the files to sample, newest first, and how many rows of each, together at most `rows`.

    Goes on to older files until those chosen hold the sample. For the second half of the files that may be read, those
    that hold less than their part of what is missing come last: a merged file lies behind many small ones.
    """
    newest = nsmallest(_FILES_LOOKED_AT, files, key=lambda file: (-file.modification_time, file.path))
    chosen: list[AddFile] = []
    held: list[int] = []
    small: list[AddFile] = []
    size, missing = 0, rows
    for at, file in enumerate(chain(newest, small)):
        free = _FILES_MAX - len(chosen)
        if free == 0 or (missing <= 0 and len(chosen) >= _FILES_MIN):
            break
        holds = rows if file.live_records is None else file.live_records
        if at < len(newest) and free <= _FILES_MAX // 2 and holds * free < missing:
            small.append(file)
        elif holds and (not chosen or size + file.size <= _BYTES_MAX):
            chosen.append(file)
            held.append(holds)
            size, missing = size + file.size, missing - holds
    return list(zip(chosen, _even(held, rows), strict=True))


def _even(held: Sequence[int], rows: int) -> list[int]:
    """Return how many rows to take of each file: as equal as what they hold allows."""
    taken = [0] * len(held)
    places = sorted(range(len(held)), key=held.__getitem__)
    for number, at in enumerate(places):
        taken[at] = min(held[at], -(-rows // (len(held) - number)))
        rows -= taken[at]
    return taken


class _Fields:
    """The values of each field that has no column, but for those that cannot become one."""

    def __init__(self, columns: set[str], left_out: set[str], takes_any_name: bool) -> None:
        self._columns = columns
        self._takes_any_name = takes_any_name
        self._left_out = left_out
        self._values: dict[str, list[object]] = {}

    def add(self, event: Mapping[str, object]) -> None:
        for name, value in event.items():
            if value is None or fold(name) in self._columns or name in self._left_out:
                continue
            if name in self._values or len(self._values) < FIELDS_MAX:
                self._values.setdefault(name, []).append(value)

    def suggestions(self, events: int) -> list[Suggestion]:
        spelled = Counter(map(fold, self._values))
        suggestions = [self._suggestion(name, values, events, spelled) for name, values in self._values.items()]
        return sorted(suggestions, key=lambda each: (-each.coverage, each.field))

    def _suggestion(self, name: str, values: list[object], events: int, spelled: Counter[str]) -> Suggestion:
        example = encode(values[0]).decode(errors="replace")
        shown = example if len(example) <= _EXAMPLE_CHARS else f"{example[: _EXAMPLE_CHARS - 1]}…"
        coverage = round(len(values) / events, 4)

        def refused(note: str) -> Suggestion:
            return Suggestion(name, None, coverage, events, shown, note)

        if spelled[fold(name)] > 1:
            return refused("fields whose names differ only in case cannot be columns")
        try:
            text = schema_string(pa.schema([pa.field(name, pa.string())]))
        except Invalid as error:
            return refused(str(error))
        if fold(name) in FEED_COLUMNS:
            return refused("with a column of that name the table has no change feed: send another name")
        kinds = Counter(map(describe, values))
        if len(kinds) > 1:
            return refused("its values are " + ", ".join(sorted(kinds)))
        [kind] = kinds
        for tried in _TYPES.get("a whole number" if all(map(_is_whole, values)) else kind, ()):
            if tried == TIMESTAMP and any(map(_is_digits, values)):
                continue  # more likely ids than times
            if not column(pa.field(name, tried), values)[1]:
                if not self._takes_any_name and needs_mapping(text):
                    return refused(
                        "a column of that name turns on column mapping, which some readers of Delta tables lack, so it "
                        f"is for you to add: --add '{name}:{type_name(tried)}'"
                    )
                return Suggestion(name, type_name(tried), coverage, events, shown)
        if kind in _DECLARED:
            what, type_of_it = _DECLARED[kind]
            return refused(f"a column would refuse {what}, so it is for you to add: --add '{name}:{type_of_it}'")
        return refused(f"no type of a column fits {kind} like these")


def _is_digits(value: object) -> bool:
    return isinstance(value, str) and value.replace(".", "", 1).isdigit()


def _is_whole(value: object) -> bool:
    """Whether a value is a number without fraction and exponent."""
    return type(value) is int or (isinstance(value, ExactNumber) and value.text.lstrip("-").isdigit())
