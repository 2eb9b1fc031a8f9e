"""The sources of a lake: one small object in it, changed with conditional writes, and looked at again after a while."""

from __future__ import annotations

import os
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING

from alluvia.errors import AnswerLost, Conflict, Invalid, ObjectNotFound
from alluvia.events.sources.definition import KEY, parse, render
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import PutResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alluvia.clock import Clock
    from alluvia.events.sources.definition import Source
    from alluvia.store import Store

_TRIES = 5
STALE_MS = 30_000
"""How old what is known may be: a source that was removed, or a secret that was replaced, is good for so long."""
LOOK_MS = 2_000
"""How soon to look again for what is not known, or not valid: at most once in this time, however many requests come."""


FileState = tuple[int, int, int] | None


def file_state(path: str) -> FileState:
    """Return the inode, size and time of a file, which another content of it does not have; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each event
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class LakeSources:
    """The sources of a lake. faults: why some are not usable, by name. tag: of the object; None if there is none.

    fault: why none is usable; "" if that is not so.
    """

    by_name: Mapping[str, Source] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    tag: str | None = None
    fault: str = ""

    def find(self, name: str) -> Source | None:
        """Return a source; None if there is none. Raises Invalid for one that is not usable."""
        if self.fault or name in self.faults:
            raise Invalid(self.fault or self.faults[name])
        return self.by_name.get(name)


def read_sources(store: Store) -> LakeSources:
    """Read the sources of a lake: one GET. Raises Invalid if their object is not TOML."""
    try:
        data, tag = store.get_tagged(KEY)
    except ObjectNotFound:
        return LakeSources()
    sources, faults = parse(data)
    return LakeSources(sources, faults, tag)


def change_sources(store: Store, edit: Callable[[dict[str, Source]], None], *, heals: str = "") -> None:
    """Change the sources of a lake at once: `edit` changes a dict of them, again where another writer came first.

    heals: a source that may be invalid before; any other that is stops the change. Raises Invalid, and Conflict where
    others keep coming first.
    """
    for _ in range(_TRIES):
        stored = read_sources(store)
        for name, fault in stored.faults.items():
            if name != heals:
                raise Invalid(f"{KEY} has a source that must be corrected or removed first: {fault}")
        sources = dict(stored.by_name)
        edit(sources)
        if _written(store, render(sources), stored.tag):
            return
    raise Conflict("the sources were changed by others meanwhile: try again")


def _written(store: Store, data: bytes, tag: str | None) -> bool:
    """Write over what a tag is of. False if something else is there; one's own earlier write is none."""
    try:
        done = (
            store.put_if_same(KEY, data, tag)
            if tag is not None
            else store.put_if_absent(KEY, data) is PutResult.CREATED
        )
    except AnswerLost:
        done = False
    if done:
        return True
    try:
        return store.get(KEY) == data
    except ObjectNotFound:
        return False


class SourceCache:
    """The sources of a lake as a warm process knows them. Thread-safe.

    In a directory, a look at the file's time shows each change at once.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._known = LakeSources()
        self._looked_ms: int | None = None
        place = store.url(KEY)
        self._file = None if place is None or "://" in place else place
        self._seen: FileState = None

    def get(self, *, age_ms_max: int = STALE_MS) -> LakeSources:
        """Return the sources, at most `age_ms_max` old: one GET if the known ones are older, else no request.

        Their object may be damaged: then all of them are faulty.
        """
        with self._lock:
            now_ms = self._clock.now_ms()
            state = None if self._file is None else file_state(self._file)
            if self._looked_ms is None or not 0 <= now_ms - self._looked_ms < age_ms_max or state != self._seen:
                self._seen = state
                try:
                    self._known = read_sources(self._store)
                except Invalid as error:
                    self._known = LakeSources(fault=str(error))
                self._looked_ms = now_ms
            return self._known
