"""Tables that are elsewhere, and have a name in this lake. Pure.

The log at that name has one version, without files, whose metadata says where the table is. A reader feature keeps
other Delta readers from taking it for an empty table.
"""

from __future__ import annotations

import orjson

from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import ATTACHED, EXTERNAL
from alluvia.errors import Corrupt


def attached_from(metadata: Metadata) -> str | None:
    """Return where the table is that is attached; None for a table of this lake, and where it was detached."""
    configuration = metadata.configuration
    return None if is_dropped(configuration) else configuration.get(ATTACHED)


def external_folders(metadata: Metadata) -> list[str]:
    """Return the places below which an external table's files are. Raises `Corrupt`."""
    try:
        return [str(each) for each in orjson.loads(metadata.configuration[EXTERNAL])["folders"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"property {EXTERNAL} cannot be read: only this library may set it") from error


def read_only_message(name: str, place: str) -> str:
    """Say that nothing can be written to an attached table."""
    return f"table {name!r} is attached from {place}: it can only be read here; write to it in its own lake"
