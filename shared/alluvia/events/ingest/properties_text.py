"""The JSON text in the column `properties`, of the fields of an event that no column takes. Pure.

- The fields of an object sent as `properties` come first, then the event's other fields without a column.
- If a name occurs in both, `properties` keeps it, and the event's own fields with such names go together into one
  object under `_event` (with underscores added in front as long as that name is taken).
- If `properties` is not an object, it stays a field named `properties`.

So nothing is lost, and a field of `properties` that no column takes always has the same path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.json_values.jsontext import encode_all

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLASH_KEY = "_event"
_EMPTY = b"{}"


def texts(sent: Sequence[object], rest: Sequence[dict[str, object]]) -> list[str | None]:
    """Return the JSON text for each event, from what it sent as `properties` and its leftover fields.

    None where there is nothing.
    """
    if not any(properties is not None for properties in sent):
        return [text.decode() if text != _EMPTY else None for text in encode_all(rest)]
    merged = encode_all(list(map(merge, sent, rest)))
    return [
        None if text == _EMPTY and properties is None else text.decode()
        for text, properties in zip(merged, sent, strict=True)
    ]


def merge(properties: object, fields: dict[str, object]) -> dict[str, object]:
    """Return one object with all of both. `fields` has no `properties` of its own."""
    if properties is None:
        return fields
    if not isinstance(properties, dict):
        return {"properties": properties} | fields
    clash = {name: value for name, value in fields.items() if name in properties}
    if not clash:
        return properties | fields
    key = _CLASH_KEY
    while key in properties or key in fields:
        key = f"_{key}"
    return properties | {name: value for name, value in fields.items() if name not in clash} | {key: clash}
