"""What a worker means to do and what it was told, on the disk before and after: all that is left when it is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `ids` are of events; `rows` and `version` are what the answer said.

    `kind` is `ready`, or `intent` before a batch is sent, `ack` when it was answered, `again` when one that had been
    acknowledged was sent once more; `delete` and `deleted` likewise; `merged`, `vacuumed`, `checkpointed` and `read`
    for what other workers did; `unknown` or `retry` for an error that means to try again, named in `error`.
    """

    kind: str
    batch: str = ""
    ids: tuple[str, ...] = ()
    version: int = -1
    rows: int = 0
    duplicates: int = 0
    error: str = ""


class Journal:
    """A file of entries, each flushed to the disk before `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, entry: Entry) -> None:
        """Add an entry."""
        os.write(self._file, json.dumps(asdict(entry)).encode() + b"\n")
        os.fsync(self._file)


def entries(path: Path) -> Iterator[Entry]:
    """Read a journal; a last line that a kill cut short was never written."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        values = json.loads(line)
        yield Entry(**{**values, "ids": tuple(values["ids"])})


def all_entries(folder: Path) -> list[Entry]:
    """Read every journal in a folder."""
    return [entry for path in sorted(folder.glob("*.journal")) for entry in entries(path)]
