"""Texts that people wrote into a table's metadata, which may repeat a value: comments and free properties. Pure.

The newest ones are for their owners to change. Those that were replaced are still in old commits and checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from alluvia.delta.log.fields import Json
from alluvia.delta.properties import CONSTRAINT, MERGE_QUERY, ROLLUP
from alluvia.delta.schema.comments import COMMENT

_SETTINGS = ("delta.columnMapping.", "alluvia.")
"""So begin the entries of a field that say how files have it."""
_NESTED = ("elementType", "keyType", "valueType")


def owner_texts(metadata: Json) -> Iterator[tuple[str, str]]:
    """Yield the texts in the body of a metaData action, each behind the place that it has in the table."""
    if metadata.get("description"):
        yield "the table's comment", metadata["description"]
    for name, text in (metadata.get("configuration") or {}).items():
        if _is_free(name):
            yield f"the table's property {name}", f"{name} {text}"
    for path, field in _fields(_schema(metadata)):
        for name, value in _notes(field).items():
            if _is_note(name, value):
                yield f"the {'comment' if name == COMMENT else name} of column {path}", value


def without_texts(metadata: Json, goes: Callable[[str], bool]) -> Json:
    """Return the body of a metaData action without the texts of which `goes` says so."""
    changed = {name: value for name, value in metadata.items() if name != "description" or not (value and goes(value))}
    properties = metadata.get("configuration") or {}
    kept = {name: text for name, text in properties.items() if not (_is_free(name) and goes(f"{name} {text}"))}
    if kept != properties:
        changed["configuration"] = kept
    schema = _schema(metadata)
    for _, field in _fields(schema):
        kept = {name: value for name, value in _notes(field).items() if not (_is_note(name, value) and goes(value))}
        if kept != _notes(field):
            field["metadata"] = kept
    if schema != _schema(metadata):
        changed["schemaString"] = orjson.dumps(schema).decode()
    return changed


def _is_free(name: str) -> bool:
    """Whether a table's property holds what people write, other than a setting."""
    return name in (ROLLUP, MERGE_QUERY) or name.startswith(CONSTRAINT) or not name.startswith(("alluvia.", "delta."))


def _is_note(name: str, value: object) -> bool:
    return isinstance(value, str) and not name.startswith(_SETTINGS)


def _schema(metadata: Json) -> Any:
    return orjson.loads(metadata.get("schemaString") or "{}")


def _notes(field: Json) -> Json:
    notes = field.get("metadata")
    return notes if isinstance(notes, dict) else {}


def _fields(kind: Any, above: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the fields of a type of a `schemaString` with their paths, those within other types included."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        path = f"{above}{field['name']}"
        yield path, field
        yield from _fields(field.get("type"), f"{path}.")
    for part in _NESTED:
        yield from _fields(kind.get(part), above)
