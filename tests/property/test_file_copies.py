"""Answers are the same from the store, from copies of files, and from a cache that has room for few of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.store import MemoryStore, Wrapper
from tests.property import row_model as model
from tests.property.test_rows import Run


class Far(Wrapper):
    """A store that DuckDB cannot open, beyond a network."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore("m", clock))
        self.parallel = True


TINY = (0, 1000, 5000)


@pytest.mark.parametrize("kind", ["copied", "vectors"])
@pytest.mark.parametrize("seed", range(2))
def test_any_history_reads_the_same(kind: str, seed: int) -> None:
    clock = ManualClock(seed=seed)
    table = Run(Lake(Far(clock), clock), kind, seed)
    for _ in range(8):
        table.step()
        check(table, [*TINY, 1 << 20])
        check(table, [table.chance.choice(TINY), 1 << 20], version=table.chance.choice(sorted(table.versions)))


def check(table: Run, limits: Sequence[int], version: int | None = None) -> None:
    expected = table.rows if version is None else table.versions[version]
    source = "t" if version is None else f"t(version => {version})"
    for size in limits:
        found = run(table.lake.catalog, f"SELECT * FROM {source}", QueryLimits(file_cache_bytes=size)).read_all()
        assert model.as_rows(found) == expected, f"{size} bytes, version {version}: {table.done}"
