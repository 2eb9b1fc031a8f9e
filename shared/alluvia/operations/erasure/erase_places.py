"""Where the fields that a condition names are in a row: columns, `properties`, and lost columns. Pure.

A field without a column of its own is kept in `properties`, and a column that is added later takes only new events. So
a field is looked for in its column, under each name that the column has had, in columns of a file that the table has no
more, and in the JSON text of `properties`: at the top, and in the object in which
`events.ingest.properties_text` keeps an event's own fields where their names were taken. A field of that name deeper
in the text may mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.former_names import former_names
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import expression_of
from alluvia.engine.queries.parse import Node, text_literal, walk
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

PROPERTIES = "properties"
_OWN_FIELDS = frozenset({"event_id", "ts", "event", "source", "received_at"})
"""Columns of event tables which never take a field of `properties`, nor leave one there."""
_CLASH = re.compile(r"_+event")
_ALIAS = "rows"
_DEPTH_MAX = 64
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErasedField:
    """A field of a condition: its `name`, folded, the table's `column` if it has one, and all `names` that it has had.

    `paths` are what the condition asks for in it: `()` is the field itself, `("id",)` its own field `id`.
    """

    name: str
    column: str | None
    names: frozenset[str]
    paths: frozenset[Path]


@dataclass(frozen=True, slots=True)
class FieldPlaces:
    """The fields of a condition in one version of a table.

    `properties` says whether the table keeps fields without a column; `lost` are names in files of columns that the
    table has no more, with the names that they have had, folded. `keys` are fields that the condition takes out of
    `properties` itself: by their names there, the columns that hold them now.
    """

    fields: tuple[ErasedField, ...]
    properties: bool
    lost: Mapping[str, frozenset[str]]
    keys: Mapping[str, str]
    stored: frozenset[str]

    @property
    def absent(self) -> tuple[ErasedField, ...]:
        """Return the fields without a column."""
        return tuple(field for field in self.fields if field.column is None)

    @property
    def in_text(self) -> tuple[ErasedField, ...]:
        """Return the fields that `properties` can hold."""
        return tuple(field for field in self.fields if field.column is None or _may_move(field))

    @property
    def only_columns(self) -> bool:
        """Whether the table's own columns are all that there is to look at."""
        return not (self.absent or self.keys or self.lost_here or (self.properties and self.in_text))

    @property
    def lost_here(self) -> bool:
        """Whether a column that the table has lost, by its record, is one of the fields."""
        wanted: frozenset[str] = frozenset().union(*(field.names for field in self.fields))
        return any(not names.isdisjoint(wanted) for names in self.lost.values())

    def looked_for(self, names: Collection[str]) -> dict[str, ErasedField | None]:
        """Return which columns of a file, by its own names for them, are fields; None for one like `properties`."""
        fields: dict[str, ErasedField | None] = {}
        for name in names:
            if name in self.stored:
                continue
            known = {fold(name), *self.lost.get(name, ())}
            for field in self.fields:
                if not known.isdisjoint(field.names):
                    fields[name] = field
            if PROPERTIES in known and name not in fields:
                fields[name] = None
        return fields


def places(where: str, snapshot: Snapshot) -> FieldPlaces:
    """Return where a condition's fields are in a version of a table. Raises `Invalid` for a text that is not one."""
    expression = expression_of(where)
    record = _record(snapshot)
    columns = {name: _names(snapshot, name, record) for name in snapshot.schema.names}
    paths_by_name: dict[str, set[Path]] = {}
    for name, path in _references(expression):
        paths_by_name.setdefault(fold(name), set()).add(path)
    meant = {name: _column(name, columns) for name in paths_by_name}
    fields = tuple(
        ErasedField(name, meant[name], frozenset({name, *columns.get(meant[name] or "", ())}), frozenset(paths))
        for name, paths in paths_by_name.items()
    )
    stored = frozenset(map(snapshot.physical_name, snapshot.schema.names))
    lost = {name: frozenset(map(fold, (name, *names))) for name, names in record.items() if name not in stored}
    has_text = _is_text(snapshot.schema, PROPERTIES)
    keys = _keys(expression, columns) if has_text else {}
    return FieldPlaces(fields, has_text and not snapshot.properties.get("alluvia.rollup"), lost, keys, stored)


def _record(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
    try:
        return former_names(snapshot.properties)
    except Corrupt:  # so any column of a file may be one of the fields
        return {}


def _names(snapshot: Snapshot, column: str, record: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    stored = snapshot.physical_name(column)
    return frozenset(map(fold, (column, stored, *record.get(stored, ()))))


def _column(name: str, columns: Mapping[str, frozenset[str]]) -> str | None:
    """Return the column that a name means: the one that is called so now, else one that was."""
    folded = fold(name)
    now = next((column for column in columns if fold(column) == folded), None)
    return now or next((column for column, names in columns.items() if folded in names), None)


def _may_move(field: ErasedField) -> bool:
    return field.column not in _OWN_FIELDS and field.column != PROPERTIES


def _is_text(schema: pa.Schema, name: str) -> bool:
    return name in schema.names and schema.field(name).type in (pa.string(), pa.large_string())


def _references(expression: Node) -> Iterator[tuple[str, Path]]:
    for node in walk(expression):
        if node.get("class") == "COLUMN_REF":
            names = node["column_names"]
            if len(names) > 1 and fold(names[0]) == _ALIAS:
                names = names[1:]
            yield names[0], tuple(names[1:])


def _keys(expression: Node, columns: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return the fields that a condition takes out of `properties` by a path, and that a column has now."""
    if all(fold(name) != PROPERTIES for name, _ in _references(expression)):
        return {}
    texts = filter(None, map(text_literal, (node for node in walk(expression) if node.get("class") == "CONSTANT")))
    columns_by_key: dict[str, str] = {}
    for text in texts:
        key = _first_step(text)
        column = _column(key, columns) if key else None
        if column is not None and column not in _OWN_FIELDS and column != PROPERTIES:
            columns_by_key[key] = column
    return columns_by_key


def _first_step(path: str) -> str:
    """Return the first field of a path: `user` of `user`, `$.user.id`, `$."user"` and `/user/id`."""
    if path.startswith("$"):
        step = re.match(r'\$\.?(?:"([^"]*)"|\[[\'"]?([^\]\'"]*)[\'"]?\]|([^.\[]*))', path)
        return next(filter(None, step.groups()), "") if step else ""
    return path.split("/")[1] if path.startswith("/") else path


@dataclass(frozen=True, slots=True)
class FieldValues:
    """What one row has of some fields outside of the table's columns: `values` of each by its name, JSON values.

    `deeper` has those that stand deeper in a text, with their paths: they may mean something else.
    """

    values: Mapping[str, Sequence[object]]
    deeper: Mapping[str, Sequence[tuple[str, object]]]


def candidates(text: pa.Array, fields: Sequence[ErasedField]) -> pa.BooleanArray:
    """Return which JSON texts can name one of some fields."""
    names = "|".join(sorted(re.escape(name) for field in fields for name in field.names))
    named = pc.match_substring_regex(text, rf"(?i)(?:{names}|\\u)")
    return pc.fill_null(named, pa.scalar(False, pa.bool_()))


def sources_of(text: str | bytes | None, fields: Sequence[ErasedField]) -> FieldValues | None:
    """Return the values of some fields in a JSON text; None if it has none of them or is not an object."""
    if not text:
        return None
    try:
        document = orjson.loads(text)
    except ValueError:
        return None
    values: dict[str, list[object]] = {}
    deeper: dict[str, list[tuple[str, object]]] = {}
    for field in fields:
        if isinstance(document, dict):
            tops = [
                document,
                *(value for key, value in document.items() if _CLASH.fullmatch(key) and isinstance(value, dict)),
            ]
            here = [value for top in tops for key, value in top.items() if fold(key) in field.names]
            here = [value for value in here if value is not None]
            if here:
                values[field.name] = here
        inside = list(_deeper(document, field, tops if isinstance(document, dict) else []))
        if inside:
            deeper[field.name] = inside
    return FieldValues(values, deeper) if values or deeper else None


def _deeper(document: object, field: ErasedField, tops: Sequence[object]) -> Iterator[tuple[str, object]]:
    """Yield fields of the name that stand deeper in a value, with their paths."""
    pending: list[tuple[str, object, int]] = [("", document, 0)]
    while pending:
        path, value, depth = pending.pop()
        if isinstance(value, str) and depth and value.lstrip()[:1] in ("{", "["):  # JSON in a text
            try:
                value = orjson.loads(value)
            except ValueError:
                continue
        if depth > _DEPTH_MAX:
            continue
        if isinstance(value, dict):
            at_top = any(value is top for top in tops)
            for key, inner in value.items():
                name = f"{path}.{key}" if path else key
                if fold(key) in field.names:
                    if not at_top and inner is not None:
                        yield name, inner
                    continue
                pending.append((name, inner, depth + 1))
        elif isinstance(value, list):
            pending.extend((path, inner, depth + 1) for inner in value)


def as_text(value: object) -> str | None:
    """Return a JSON value as text, as SQL's `->>` has it."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()


def as_struct(value: Any, paths: Collection[Path]) -> dict[str, Any] | None:
    """Return what a JSON value has at some paths, in objects with text at their ends; None if it is no object."""
    if not isinstance(value, dict):
        return None
    struct: dict[str, Any] = {}
    for name in {path[0] for path in paths}:
        inner = next((each for key, each in value.items() if fold(key) == fold(name)), None)
        below = {path[1:] for path in paths if path[0] == name} - {()}
        struct[name] = as_struct(inner, below) if below else as_text(inner)
    return struct


def text_type(paths: Collection[Path], kind: pa.DataType = pa.string()) -> pa.DataType:  # noqa: B008 - it is a value
    """Return the type of a field of which a condition asks for some paths, whose values are to be of one type."""
    below = {path for path in paths if path}
    if not below:
        return kind
    names = sorted({path[0] for path in below})
    return pa.struct([pa.field(name, text_type({p[1:] for p in below if p[0] == name}, kind)) for name in names])
