"""The offers of a run, and what must hold of a commit that takes some: it does what their owners meant, once each."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from alluvia.commit.commit_offers import Contention
from tests.simulation.intents import AddEvents, Intent, Steps
from tests.simulation.model import TableModel, Version
from tests.simulation.scheduler import Violation

_OFFER = re.compile(r"^(?P<root>.*?)_alluvia/offers/(?P<base>\d{20})/(?P<id>[^/]+)$")
CROWDED = 0.3
CROWD = 4
"""The share of runs with a crowd of writers of events, and how many come besides the others."""


@dataclass(frozen=True)
class Offered:
    """Rows that somebody has offered: for which version, how many, and the ids that they may have."""

    root: str
    base: int
    rows: int
    ids: frozenset[str] = field(compare=False)


class Offers:
    """All offers of a run, by id, and the versions that took them."""

    def __init__(self) -> None:
        self._offered: dict[str, Offered] = {}
        self._taken: dict[str, int] = {}

    def put(self, key: str, data: bytes, intent: object) -> None:
        """Take an offer, if it is one. What it says never changes."""
        match = _OFFER.match(key)
        if match is None:
            return
        with pa.ipc.open_stream(data) as stream:
            rows = stream.read_all().num_rows
        offered = Offered(match["root"], int(match["base"]), rows, _ids(intent))
        if self._offered.setdefault(match["id"], offered) != offered:
            raise Violation("an offer never changes", key)

    def take(self, table: TableModel, after: Version, info: Mapping[str, Any], intent: object, added: int) -> Intent:
        """Take a commit of offers. Returns what it may do."""
        where, total, ids = f"{table.root} {after.number}", 0, _ids(intent)
        for each in str(info["alluviaOffers"]).split():
            offered = self._offered[each]
            if self._taken.setdefault(each, after.number) != after.number:
                raise Violation("an offer is taken once", f"{each} in {where} and {self._taken[each]}")
            if offered.root != table.root or offered.base >= after.number:
                raise Violation("an offer is for a table and a version", f"{each} in {where}")
            for version in table.versions[offered.base : after.number]:
                if (version.columns, version.configuration) != (after.columns, after.configuration):
                    raise Violation("an offer is for the table as it was", f"{each} of {offered.base} in {where}")
            total, ids = total + offered.rows, ids | offered.ids
        if added != total:
            raise Violation("a commit has all rows of its offers", f"{added} instead of {total} in {where}")
        return AddEvents(ids)


def _ids(intent: object) -> frozenset[str]:
    meant = intent.by_operation.get("WRITE") if isinstance(intent, Steps) else None
    return frozenset(meant.ids) if isinstance(meant, AddEvents) else frozenset()


def is_crowded(seed: int) -> bool:
    """Whether every writer of events takes it that there are many others, and there are."""
    return random.Random(f"{seed} crowd").random() < CROWDED


def crowd(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Let the writers of a crowded run offer their rows."""
    if is_crowded(seed):
        patch.setattr(Contention, "is_recent", lambda _self, _now_ms: True)
