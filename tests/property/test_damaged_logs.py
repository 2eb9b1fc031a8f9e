"""Real logs, damaged at random: what is read from one is an error of ours or a table, and never a raw exception."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError, Corrupt
from alluvia.store import MemoryStore
from tests.examples import seeds_from
from tests.property.damage import Files, damaged, flipped

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_tables.tar.gz"
BYTES_MAX = 1_000_000
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "second checkpoints": {"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"},
    "structs": {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
}


@cache
def made(kind: str) -> Files:
    """Return the files of a table of ours: commits, a checkpoint, and commits after it."""
    clock = ManualClock(seed=3)
    store = MemoryStore("made", clock)
    table = Lake(store, clock).create_table("t", {"x": "long", "s": "string"}, properties=KINDS[kind])
    for number in range(4):
        table.append([{"x": 3 * number + at, "s": f"{number} {at}"} for at in range(3)])
    table.delete("x = 4")
    table.checkpoint()
    table.append([{"x": 99, "s": "last"}])
    table.update({"s": "'new'"}, where="x = 7")
    return {info.key.removeprefix("t/"): store.get(info.key) for info in store.list("t/")}


@cache
def golden() -> dict[str, Files]:
    """Return the files of the golden tables that are small."""
    tables: dict[str, Files] = {}
    with tarfile.open(GOLDEN) as archive:
        for member in archive.getmembers():
            root, log, _ = member.name.partition("/_delta_log/")
            if log and member.isfile():
                tables.setdefault(root, {})
        for member in archive.getmembers():
            found = [root for root in tables if member.name.startswith(root + "/")]
            data = archive.extractfile(member) if found and member.isfile() else None
            if data is not None and not member.name.endswith(".crc"):
                tables[found[0]][member.name.removeprefix(found[0] + "/")] = data.read()
    logs = {root: files for root, files in tables.items() if all(files.values())}
    return {root: files for root, files in logs.items() if sum(map(len, files.values())) < BYTES_MAX}


def opened(files: Files) -> Table:
    clock = ManualClock()
    store = MemoryStore("damaged", clock)
    for name, data in files.items():
        store.put(f"t/{name}", data)
    return Lake(store, clock).table("t")


def rows(table: Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.scan().read_all().to_pylist()
    return sorted(found, key=repr)


def uses(table: Table) -> list[Callable[[], object]]:
    """Return what users do with a table, once it is open."""
    name = next(iter(table.snapshot().schema.names), "x")
    newest = table.snapshot().version
    return [
        table.history,
        lambda: table.lake.sql("SELECT count(*) FROM t"),
        lambda: table.scan(where=f'"{name}" IS NOT NULL').read_all(),
        lambda: table.scan(version=max(0, newest - 1)).read_all(),
        lambda: table.changes(0).read_all(),
        lambda: table.delete(f'"{name}" IS NULL'),
        lambda: table.restore(version=max(0, newest - 1)),
        lambda: table.append([{}]),
        lambda: table.optimize(full=True),
        table.checkpoint,
        table.vacuum,
    ]


def use(files: Files, chance: random.Random) -> None:
    """Do all that users do, in any order. No error but ours passes."""
    table = opened(files)
    try:
        table.scan().read_all()
        acts = uses(table)
    except AlluviaError:
        return
    for act in chance.sample(acts, 4):
        try:
            act()
        except AlluviaError:
            continue


def survive(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        tables = [made(chance.choice(list(KINDS))), chance.choice(list(golden().values()))]
        files, what = damaged(chance.choice(tables), chance)
        try:
            use(files, chance)
        except Exception as error:
            message = f"seed {seed}: {what}"
            raise AssertionError(message) from error


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 100), marks=pytest.mark.slow)], ids=str)
def test_damage_to_a_log_ends_in_an_error_of_ours_or_in_a_table(seeds: range) -> None:
    survive(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(5))
def test_much_damage_to_logs(portion: int) -> None:
    survive(seeds_from(1000 * (1 + portion), 40))


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize("part", ["pages", "footer"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_that_changed_in_a_parquet_file(kind: str, part: str) -> None:
    """Every page of checkpoints, sidecars and data files has a checksum: rows are never wrong. A footer has none."""
    files = made(kind)
    wanted = rows(opened(files))
    names = sorted(name for name in files if name.endswith(".parquet"))
    chance = random.Random(kind)
    refused = 0
    for _ in range(60):
        name = chance.choice(names)
        at = footer_start(files[name])
        pages, footer = files[name][4:at], files[name][at:]
        data = flipped(pages, chance) + footer if part == "pages" else pages + flipped(footer, chance)
        try:
            found = rows(opened({**files, name: files[name][:4] + data}))
        except AlluviaError:
            refused += 1
        else:
            assert found == wanted or part == "footer", name
    assert refused > 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_was_cut_is_named(kind: str) -> None:
    files = made(kind)
    last = sorted(name for name in files if name.endswith(".json"))[-1]
    data = files[last]
    chance = random.Random(kind)
    for _ in range(20):
        cut = data[: chance.randrange(1, len(data))].rstrip(b"\n")
        if cut.endswith(b"}}") and data[len(cut) : len(cut) + 1] == b"\n":
            continue
        with pytest.raises(Corrupt, match=last):
            opened({**files, last: cut}).snapshot()
