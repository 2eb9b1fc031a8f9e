"""Opening a table cold: 100,000 files from checkpoints of every kind, and 10,000 commits without one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

import alluvia
from benchmarks.measure import Run, in_processes, megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import count, delta_options, shown
from benchmarks.tables import log_of_commits, row, table_of
from tests.s3server import S3Server

FILES = 100_000
COMMITS = 10_000
REPEATS = 4
KINDS = {
    "ours": "v1 checkpoint of ours",
    "theirs": "v1 checkpoint of deltalake's",
    "sidecars": "v2 checkpoint",
}


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Open from a directory for time and memory, and from the S3 server for requests."""
    make_tables(folder)
    found = []
    for name, kind in KINDS.items():
        found += _from_checkpoint(str(folder / name), kind)
    found += _as_objects(str(folder / "ours"))
    found.append(_nothing_matches(str(folder / "ours")))
    found += _requests(server, folder)
    log_of_commits(folder / "many", COMMITS)
    return found + _without_checkpoint(str(folder / "many"))


def make_tables(folder: Path) -> None:
    """Write the same 100,000 files under each kind of checkpoint; the last commit is a small one."""
    lake = alluvia.connect(str(folder))
    table = table_of(lake, "ours", FILES - 1)
    table.append(row(FILES - 1))
    for name in ("theirs", "sidecars"):
        shutil.copytree(folder / "ours", folder / name)
    table.checkpoint()
    DeltaTable(folder / "theirs").create_checkpoint()
    sidecars = alluvia.connect(str(folder)).table("sidecars")
    sidecars.evolve(properties={"delta.checkpointPolicy": "v2"})
    sidecars.checkpoint()


def _compared(name: str, runs: dict[str, Run], share: float, memory_share: float, peer: str = "") -> list[Figure]:
    ours, theirs = runs["ours"], runs["theirs"]
    assert ours.answer == theirs.answer
    ratio, memory = ours.seconds / theirs.seconds, ours.peak_bytes / theirs.peak_bytes
    shown_peer = f" ({peer})" if peer else ""
    bar, memory_bar = (f"at most {each:g} times" for each in (share, memory_share))
    process = ours.process_seconds / theirs.process_seconds
    return [
        Figure(f"{name}: time", milliseconds(ours.seconds), milliseconds(theirs.seconds) + shown_peer, ratio, bar,
               ratio <= share),
        Figure(f"{name}: time with imports", milliseconds(ours.process_seconds),
               milliseconds(theirs.process_seconds) + shown_peer, process),
        Figure(f"{name}: peak memory", megabytes(ours.peak_bytes), megabytes(theirs.peak_bytes) + shown_peer, memory,
               memory_bar, memory <= memory_share),
    ]  # fmt: skip


def _sides(kind: str, arguments: dict[str, Any], **theirs: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    return {"ours": (f"{kind}_ours", arguments), "theirs": (f"{kind}_deltalake", arguments | theirs)}


def _from_checkpoint(uri: str, kind: str) -> list[Figure]:
    arguments: dict[str, Any] = {"uri": uri, "options": {}}
    name = f"{FILES:,} files, {kind}"
    opened = in_processes(_sides("open", arguments, files=FILES), REPEATS)
    listed = in_processes(_sides("list", arguments), REPEATS)
    return [*_compared(f"{name}, open", opened, 1, 1), *_compared(f"{name}, open and name every file", listed, 1, 1)]


def _as_objects(uri: str) -> list[Figure]:
    runs = in_processes(_sides("read", {"uri": uri, "options": {}}), 3)
    return _compared(f"{FILES:,} files, open and make an object of every file", runs, 1, 1)


def _nothing_matches(uri: str) -> Figure:
    arguments = {"uri": uri, "column": "id"}
    runs = in_processes({"ours": ("none_ours", arguments), "theirs": ("none_duckdb", arguments)}, REPEATS)
    return _compared(f"{FILES:,} files, open and prune all", runs, 1, 1, "delta_scan")[0]


def _without_checkpoint(uri: str) -> list[Figure]:
    arguments: dict[str, Any] = {"uri": uri, "options": {}}
    runs = in_processes(_sides("open", arguments, files=COMMITS - 1), 2 * REPEATS)
    return _compared(f"{COMMITS:,} commits without a checkpoint, open", runs, 0.25, 0.5)


def _requests(server: S3Server, folder: Path) -> list[Figure]:
    found = []
    for name, kind in KINDS.items():
        bucket = server.new_bucket()
        upload(server, bucket, folder / name)
        uri = f"s3://{bucket}/{name}"
        ours = count(server, lambda: alluvia.open_table(uri, **server.options).snapshot())  # noqa: B023
        theirs = count(server, lambda: DeltaTable(uri, storage_options=delta_options(server)))  # noqa: B023
        holds = ours["GET"] <= 4 and ours["LIST"] == 1 and not ours["HEAD"]
        ratio = ours.total() / theirs.total()
        title = f"{FILES:,} files, {kind}, open from S3"
        found.append(Figure(title, shown(ours), shown(theirs), ratio, "4 GET + 1 LIST", holds))
    return found


def upload(server: S3Server, bucket: str, table: Path) -> None:
    """Copy a table's checkpoints and the newest commit, all that an open needs, into a bucket."""
    log = table / "_delta_log"
    newest = max(log.glob("*.json"))
    for path in [newest, log / "_last_checkpoint", *log.glob("*.checkpoint*"), *log.glob("_sidecars/*")]:
        key = str(path.relative_to(table.parent))
        server.client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
