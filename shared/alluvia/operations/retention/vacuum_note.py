"""How far a vacuum has come, `_alluvia/vacuum.json` in a table's folder: the next one goes on from there."""

from __future__ import annotations

import orjson

from alluvia.commit.handle import TableHandle
from alluvia.errors import ObjectNotFound

NOTE = "_alluvia/vacuum.json"


def read_note(handle: TableHandle) -> str | None:
    """Return the last key, below the table's root, that a vacuum has looked at; None for none that can be read."""
    try:
        after = orjson.loads(handle.store.get(handle.root + NOTE))["after"]
    except (ObjectNotFound, ValueError, KeyError, TypeError):
        return None
    return after if isinstance(after, str) else None


def write_note(handle: TableHandle, after: str) -> None:
    """Note the last key that a vacuum has looked at; one PUT."""
    handle.store.put(handle.root + NOTE, orjson.dumps({"after": after}))


def forget_note(handle: TableHandle) -> None:
    """Delete the note, because the listing's end was reached."""
    handle.store.delete([handle.root + NOTE])
