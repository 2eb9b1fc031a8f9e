"""The record of a copy: its source, and the versions of tables that backups have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import orjson

from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store

KEY = "_alluvia/backup.json"


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """`source` is the lake's URI. `versions` are those of the last backup that ended, at `moment_ms`; None for none.

    `coming` are those of a backup that has begun to copy logs, and has not ended.
    """

    source: str
    moment_ms: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    coming: Mapping[str, int] = field(default_factory=dict)

    def newest(self, table: str) -> int:
        """Return the newest version of a table that a backup may have written; -1 for none."""
        return max(self.versions.get(table, -1), self.coming.get(table, -1))

    def begun(self, versions: Mapping[str, int]) -> BackupRecord:
        """Return the record once these versions may come."""
        newest = {name: max(version, self.coming.get(name, -1)) for name, version in versions.items()}
        return replace(self, coming={**self.coming, **newest})

    def done(self, moment_ms: int) -> BackupRecord:
        """Return the record once all that was to come is there."""
        return BackupRecord(self.source, moment_ms, {**self.versions, **self.coming})


def read_record(store: Store) -> BackupRecord | None:
    """Return the record of a copy; None where there is none. Raises `Corrupt`."""
    try:
        told = orjson.loads(store.get(KEY))
        return BackupRecord(told["source"], told["moment_ms"], told["versions"], told["coming"])
    except ObjectNotFound:
        return None
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise Corrupt(f"{KEY} in {store.uri} is damaged: choose another place for the backup") from error


def write_record(store: Store, record: BackupRecord) -> None:
    """Write the record of a copy over an older one."""
    told = {
        "source": record.source,
        "moment_ms": record.moment_ms,
        "versions": dict(record.versions),
        "coming": dict(record.coming),
    }
    store.put(KEY, orjson.dumps(told, option=orjson.OPT_INDENT_2))
