"""Marks of the tables that pipelines make, and records of runs that failed: objects under the lake's root.

A mark is an empty object that names a table and one of its sources, so that one LIST gives the whole graph. It is put
before the table's commit and stays: the table itself decides. Branches put marks in their lake too, where the table is
once it is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from datetime import datetime

import orjson

from alluvia.clock import Clock, datetime_of
from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store
from alluvia.table_names import sql_name

PIPELINES = "_alluvia/pipelines/"
_SOURCES, _FAILED = f"{PIPELINES}sources/", f"{PIPELINES}failed/"
_MINUTE_MS = 60_000
REST_MINUTES_MAX = 360


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The last scheduled run of a table, which failed, as `tries` in a row have.

    The reason may show values of a row. It goes with the next run that does not fail, and an erasure of such a value
    deletes it. With `at_limit`, one of these runs took more time, memory or disk than a function has.
    """

    error: str
    failed_ms: int
    tries: int = 1
    at_limit: bool = False

    @property
    def failed_at(self) -> datetime:
        """Return the time of the failure."""
        return datetime_of(self.failed_ms)

    @property
    def rests_until_ms(self) -> int:
        """Return when the table is due again: after twice as long as the last time, and six hours at most."""
        minutes: int = min(1 << min(self.tries, 10), REST_MINUTES_MAX)
        return self.failed_ms + minutes * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class Marks:
    """Pairs of a source, as SQL names it, and a table that is made of it; and the tables whose last run failed."""

    pairs: frozenset[tuple[str, str]]
    failed: frozenset[str]


def put_marks(store: Store, table: str, sources: Iterable[str]) -> None:
    """Record in the lake the sources from which a pipeline makes a table. One PUT for each source."""
    for name in sources:
        store.put(f"{_SOURCES}{sql_name(name)}/{table}", b"1")


def read_marks(store: Store) -> Marks:
    """Return the marks of a lake: one LIST for 1,000 of them."""
    infos = list(store.list(PIPELINES))
    failed = frozenset(
        each.key.removeprefix(_FAILED) for each in infos if each.key.startswith(_FAILED) and each.size > 1
    )
    return Marks(pairs_of((each.key for each in infos if each.key.startswith(_SOURCES)), _SOURCES), failed)


def pairs_of(keys: Iterable[str], prefix: str) -> frozenset[tuple[str, str]]:
    """Return the pairs of a source and a table that marks under a prefix name, as those of rollups do."""
    parts = (key.removeprefix(prefix).partition("/") for key in keys)
    return frozenset((source, table) for source, _, table in parts)


def read_failure(store: Store, table: str) -> FailedRun | None:
    """Return the record of a failed run of a table; None if there is none. The table may have run since."""
    try:
        data = store.get(_FAILED + table)
    except ObjectNotFound:
        return None
    if len(data) <= 1:
        return None
    known = {each.name for each in fields(FailedRun)}  # a newer version may record more
    return FailedRun(**{name: value for name, value in orjson.loads(data).items() if name in known})


def note_failure(
    store: Store, clock: Clock, table: str, error: str, before: FailedRun | None = None, *, at_limit: bool = False
) -> FailedRun:
    """Record that a run of a table failed; `before` is the run before it if that failed, too.

    Records that two runs write at once count one of them.
    """
    run = FailedRun(error, clock.now_ms(), at_limit=at_limit)
    if before is not None:
        run = replace(run, tries=before.tries + 1, at_limit=at_limit or before.at_limit)
    store.put(_FAILED + table, orjson.dumps(asdict(run)))
    return run


def clear_failure(store: Store, table: str) -> None:
    """Record that the last run of a table did not fail: the reason is overwritten. No role of a function deletes."""
    store.put(_FAILED + table, b"0")
