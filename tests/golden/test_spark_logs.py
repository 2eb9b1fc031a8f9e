"""Tables that delta-spark wrote, with what may befall a log: clean-up, wrong hints, vectors stored in other ways."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import alluvia
from alluvia.delta.deletion_vectors.descriptors import decode_z85, encode_z85
from alluvia.errors import Corrupt, VersionExpired
from tests.golden.reading import folders, rows, written

CHECKPOINTED = ("checkpoints_bare", "map_renamed_to_another", "multipart", "stats_struct", "v2_json", "v2_parquet")
HINTS = {
    "as it was": lambda text: text,
    "of no version": lambda _: "",
    "cut": lambda text: text[:12],
    "too late": lambda _: '{"version":99,"size":1}',
    "too early": lambda _: '{"version":0,"size":1}',
}
VECTORS = ("dv_partitioned", "dv_row_groups", "reserved_plain")
Json = dict[str, Any]


def _copy(source: Path, folder: Path) -> Path:
    shutil.copytree(source, folder / "delta")
    return folder / "delta"


def _checkpoint_version(log: Path) -> int:
    return max(int(path.name[:20]) for path in log.glob("*.checkpoint.*"))


def _remove_before(log: Path, version: int) -> None:
    for path in [*log.glob("0*.json"), *log.glob("0*.parquet"), *log.glob("0*.crc")]:
        if int(path.name[:20]) < version:
            path.unlink()


def _reads(folder: Path, expected: Path, version: int) -> None:
    table = alluvia.open_table(str(folder))
    wanted = rows(written(expected / f"v{version}"))
    assert rows(table.scan(version=version).read_all()) == wanted, version
    assert rows(table.lake.sql(f"SELECT * FROM delta(version => {version})")) == wanted, version


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS.keys())
@pytest.mark.parametrize("case", CHECKPOINTED)
def test_a_cleaned_log_is_read_from_its_checkpoint_on(
    case: str, hint: Callable[[str], str], spark_tables: Path, tmp_path: Path
) -> None:
    source = spark_tables / case
    log = _copy(source / "delta", tmp_path) / "_delta_log"
    first = _checkpoint_version(log)
    _remove_before(log, first)
    last = log / "_last_checkpoint"
    last.write_text(hint(last.read_text()))
    versions = sorted(int(name[1:]) for name in folders(source / "expected"))
    for version in versions:
        if version >= first:
            _reads(log.parent, source / "expected", version)
    with pytest.raises(VersionExpired):
        alluvia.open_table(str(log.parent)).scan(version=0)


def test_an_incomplete_checkpoint_in_parts_is_passed_over_where_the_commits_are_there(
    spark_tables: Path, tmp_path: Path
) -> None:
    source = spark_tables / "multipart"
    log = _copy(source / "delta", tmp_path) / "_delta_log"
    parts = sorted(log.glob(f"{_checkpoint_version(log):020d}.checkpoint.*.parquet"))
    assert len(parts) > 1
    parts[0].unlink()
    newest = max(int(name[1:]) for name in folders(source / "expected"))
    _reads(log.parent, source / "expected", newest)
    _remove_before(log, _checkpoint_version(log))
    with pytest.raises(Corrupt, match="missing"):
        alluvia.open_table(str(log.parent)).snapshot()


def _actions(log: Path, change: Callable[[Json], None]) -> None:
    """Change the deletion vectors of a log, whose checkpoints go."""
    for path in [*log.glob("*.checkpoint*"), *log.glob("*.crc"), *log.glob("_last_checkpoint")]:
        path.unlink()
    for commit in log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for vector in _vectors(actions):
            change(vector)
        commit.write_text("\n".join(map(json.dumps, actions)))


def _vectors(actions: list[Json]) -> Iterator[Json]:
    for action in actions:
        for kind in ("add", "remove"):
            vector = action.get(kind, {}).get("deletionVector")
            if vector:
                yield vector


def _file_of(folder: Path, vector: Json) -> Path:
    return folder / f"deletion_vector_{UUID(bytes=decode_z85(vector['pathOrInlineDv']))}.bin"


@pytest.mark.parametrize("storage", ["inline", "absolute", "prefixed"])
@pytest.mark.parametrize("case", VECTORS)
def test_a_deletion_vector_may_be_stored_in_several_ways(
    case: str, storage: str, spark_tables: Path, tmp_path: Path
) -> None:
    folder = _copy(spark_tables / case / "delta", tmp_path)
    changed: list[Json] = []

    def change(vector: Json) -> None:
        file = _file_of(folder, vector)
        changed.append(vector)
        if storage == "inline":
            start = vector.pop("offset") + 4
            data = file.read_bytes()[start : start + vector["sizeInBytes"]]
            vector |= {"storageType": "i", "pathOrInlineDv": encode_z85(data + bytes(-len(data) % 4))}
        elif storage == "absolute":
            vector |= {"storageType": "p", "pathOrInlineDv": file.as_uri()}
        else:
            (folder / "a1").mkdir(exist_ok=True)
            shutil.copy(file, folder / "a1")
            vector["pathOrInlineDv"] = f"a1{vector['pathOrInlineDv']}"

    _actions(folder / "_delta_log", change)
    assert changed
    if storage == "prefixed":
        for file in folder.glob("*.bin"):
            file.unlink()
    for name in folders(spark_tables / case / "expected"):
        _reads(folder, spark_tables / case / "expected", int(name[1:]))
