"""What a vacuum did, gathered block by block. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

import orjson

from alluvia.arrow_compute import pc
from alluvia.commit.handle import TableHandle
from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.retention.vacuum_plan import Kept, LogPlan, VacuumPlan

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


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Objects that vacuum deleted or would delete. Sizes in bytes; `oldest_version` is the oldest readable one.

    `data_files` has deletion vectors too, `change_files` what is below `_change_data`, and `scratch` windows of event
    ids that no checkpoint has any more. `counts` are the objects of each kind, also where `names_max` cut their names.
    `kept` says what stays, and why. `not_deleted` are keys that the store refused to delete. Where `complete` is false,
    time ran out, and the next vacuum goes on from there.
    """

    dry_run: bool
    data_files: tuple[str, ...]
    orphans: tuple[str, ...]
    log_files: tuple[str, ...]
    bytes_freed: int
    oldest_version: int
    change_files: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    kept: tuple[Kept, ...] = ()
    not_deleted: tuple[str, ...] = ()
    complete: bool = True


class VacuumTally:
    """Adds up plans that were carried out, with at most `names_max` names of each kind."""

    def __init__(self, names_max: int | None = None) -> None:
        self._names_max = names_max
        self._names: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()
        self._bytes = 0
        self._kept: dict[str, Kept] = {}
        self._failed: list[str] = []

    def add(self, plan: VacuumPlan, log_plan: LogPlan, failed: Iterable[str]) -> None:
        """Take what went and stayed of a block; the keys that `failed` did not go."""
        missed = set(failed)
        self._failed += sorted(missed)
        files = {"data_files": plan.data_files, "orphans": plan.orphans, "change_files": plan.change_files}
        for kind, table in files.items():
            self._take(kind, table["key"].to_pylist(), missed)
        self._bytes += pc.sum(plan.objects["size"]).as_py() or 0
        for kind, infos in (("log_files", log_plan.log_files), ("scratch", log_plan.windows)):
            self._take(kind, [info.key for info in infos], missed)
            self._bytes += sum(info.size for info in infos)
        for kept in (*plan.kept, *log_plan.kept):
            self._kept[kept.reason] = self._kept[kept.reason] + kept if kept.reason in self._kept else kept

    def _take(self, kind: str, keys: list[str], missed: set[str]) -> None:
        gone = [key for key in keys if key not in missed] if missed else keys
        self._counts[kind] += len(gone)
        names = self._names.setdefault(kind, [])
        names += gone if self._names_max is None else gone[: max(0, self._names_max - len(names))]

    def report(self, oldest_version: int, *, dry_run: bool, complete: bool) -> VacuumReport:
        """Return the report of all that was added."""
        names = {kind: tuple(each) for kind, each in self._names.items()}
        return VacuumReport(
            dry_run,
            bytes_freed=self._bytes,
            oldest_version=oldest_version,
            counts=dict(self._counts),
            kept=tuple(self._kept.values()),
            not_deleted=tuple(self._failed),
            complete=complete,
            **names,
        )
