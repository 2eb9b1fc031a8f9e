"""What `history('t')` says that a version holds is what the version holds, whatever was done to the table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.clock import SystemClock
from alluvia.store.memory import MemoryStore
from tests.examples import examples

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "delete", "update", "optimize", "restore", "checkpoint", "evolve", "drop"]
        ),
        st.integers(0, 5),
    ),
    min_size=3,
    max_size=9,
)


def step(lake: alluvia.Lake, what: str, number: int) -> None:
    table = lake["t"]
    if what == "append":
        table.append([{"n": number * 10 + at} for at in range(number + 1)])
    elif what == "delete":
        table.delete(f"n % 6 = {number}")
    elif what == "update":
        table.update({"n": "n + 1"}, f"n % 5 = {number}")
    elif what == "restore":
        oldest = min(entry.version for entry in table.history())
        table.restore(max(oldest, table.version - number))
    elif what == "evolve":
        table.evolve(properties={"own": str(number)})
    elif what == "drop":
        lake.drop_table("t")
        create(lake, vectors=number % 2 == 0)
    else:
        table.optimize(full=True) if what == "optimize" else table.checkpoint()


def create(lake: alluvia.Lake, *, vectors: bool) -> None:
    lake.create_table("t", {"n": "long"}, properties={"delta.enableDeletionVectors": str(vectors).lower()})


@pytest.mark.usefixtures("light")
@settings(max_examples=examples(12))
@given(steps=STEPS, vectors=st.booleans(), newest=st.integers(1, 20))
def test_history_says_what_each_version_holds(steps: list[tuple[str, int]], vectors: bool, newest: int) -> None:
    lake = alluvia.Lake(MemoryStore("history"), SystemClock())
    create(lake, vectors=vectors)
    for what, number in steps:
        step(lake, what, number)
    table = lake["t"]
    expected = {}
    for entry in table.history():
        snapshot = table.snapshot(entry.version)
        size = sum(file.size for file in snapshot.files)
        expected[entry.version] = (len(snapshot.files), table.count(entry.version), size)
    for reader in (lake, alluvia.Lake(lake.store, SystemClock())):
        found = reader.sql("SELECT version, files, rows, bytes FROM history('t')").to_pylist()
        assert {each["version"]: (each["files"], each["rows"], each["bytes"]) for each in found} == expected
        part = reader.sql(f"SELECT version, rows FROM history('t', {newest})").to_pylist()
        assert [(each["version"], each["rows"]) for each in part] == [
            (version, expected[version][1]) for version in sorted(expected, reverse=True)[:newest]
        ]
