"""A table under many small commits, compared with DuckLake (inlined), deltalake and pyiceberg, as DuckLake measures it.

Batches of ten rows are appended one by one. At moments in between, and before and after maintenance, an aggregate
reads the whole table. Each side has its own process, and the sides take turns after each hundred batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measure import megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import delta_options, shown
from benchmarks.streaming_sides import PEERS, Side, postgres
from tests.s3server import S3Server

BATCHES, FEW_BATCHES, MANY_BATCHES, S3_BATCHES = 3000, 300, 30_000, 100
DUCKLAKES = ("duckdb", "sqlite", "postgres")
"""Kinds of catalogs."""
ROUND, S3_ROUND = 100, 10
MOMENTS = 10
READS, S3_READS = 10, 3
"""The kernel counts the CPU time of a running process in hundredths of a second."""
DELAY_SECONDS = 0.02
POLICIES: Mapping[str, dict[str, Any]] = {
    "when due": {},
    "every 10 commits": {"when_due": False},
    "every 100 commits": {"when_due": False, "every": 100},
}


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Measure 3,000 batches on a directory, 100 over S3 with 20 ms a request, and ways to choose merges.

    pyiceberg, whose metadata grows with each batch, takes part in 300.
    """
    return [
        *_on_a_directory(folder, BATCHES, ("deltalake", *DUCKLAKES)),
        *(_on_a_directory(folder / "few", FEW_BATCHES, ("pyiceberg",)) if PEERS.is_dir() else ()),
        *_policies(folder),
        *_over_s3(server, folder),
    ]


def many_figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure 30,000 batches on a directory, with DuckLake as the only peer, since the others take hours."""
    return _on_a_directory(folder, MANY_BATCHES, DUCKLAKES)


class _Stream:
    """CPU seconds of a side's appends and of a read at each moment, and the seconds of the first such read."""

    def __init__(self, side: Side, reads: int = READS) -> None:
        self.side = side
        self._reads = reads
        self.append_cpu = 0.0
        self.moments: list[float] = []
        self.firsts: list[float] = []

    def append(self, count: int) -> None:
        done = self.side.ask(f"append {count}")
        self.append_cpu += done["cpu"]

    def read(self) -> Any:
        found = [self.side.ask("read") for _ in range(self._reads)]
        self.moments.append(sum(each["cpu"] for each in found) / self._reads)
        self.firsts.append(found[0]["seconds"])
        return found[0]["found"]


def _run(streams: Mapping[str, _Stream], batches: int, round_batches: int = ROUND) -> dict[str, dict[str, Any]]:
    """Append batches to all sides in turns, read at moments, and maintain; return what maintenance took."""
    for stream in streams.values():
        stream.side.ask("read")  # so that its processes run
    for number in range(0, batches, round_batches):
        for stream in streams.values():
            stream.append(round_batches)
        if number // round_batches % _rounds_between(batches, round_batches) == 0:
            _read(streams)
    _read(streams)
    done = {name: stream.side.ask("maintain") for name, stream in streams.items()}
    _read(streams)
    return done


def _rounds_between(batches: int, round_batches: int) -> int:
    return max(1, batches // MOMENTS // round_batches)


def _read(streams: Mapping[str, _Stream]) -> None:
    found = {name: json.dumps(stream.read(), default=str) for name, stream in streams.items()}
    assert len(set(found.values())) == 1, found


def _on_a_directory(folder: Path, batches: int, peers: Sequence[str]) -> list[Figure]:
    with ExitStack() as held:
        streams = {name: _Stream(side) for name, side in _sides(folder, held, peers)}
        done = _run(streams, batches, min(ROUND, batches // MOMENTS))
        told = done["Alluvia"]["told"]
    title, ours = f"{batches:,} batches of 10 rows on a directory", streams.pop("Alluvia")
    found = [_within_two(title, ours, f"most files before a merge: {told['files_max']}")]
    for name, peer in streams.items():
        found += [
            _figure(f"{title}: CPU of an append, merges included", ours.append_cpu, peer.append_cpu, name, batches,
                    bar=True),
            _figure(f"{title}: CPU of a read at its slowest", max(ours.moments[:-1]), max(peer.moments[:-1]), name),
            _figure(f"{title}: CPU of maintenance", done["Alluvia"]["cpu"], done[name]["cpu"], name),
            _figure(f"{title}: CPU of a read after maintenance", ours.moments[-1], peer.moments[-1], name),
        ]  # fmt: skip
    return found


def _figure(title: str, ours: float, theirs: float, name: str, count: int = 1, *, bar: bool = False) -> Figure:
    ratio = ours / theirs
    holds = ratio < 1 if bar else None
    texts = [milliseconds(each / count) for each in (ours, theirs)]
    return Figure(title, texts[0], f"{texts[1]} ({name})", ratio, "less" if bar else "", holds)


def _within_two(title: str, ours: _Stream, note: str) -> Figure:
    worst, after = max(ours.moments[:-1]), ours.moments[-1]
    return Figure(
        f"{title}: CPU of a read at its slowest, compared with one after maintenance; {note}",
        milliseconds(worst),
        f"{milliseconds(after)} (Alluvia after maintenance)",
        worst / after,
        "at most 2 times",
        worst <= 2 * after,
    )


def _sides(folder: Path, held: ExitStack, peers: Sequence[str]) -> Iterator[tuple[str, Side]]:
    """Yield the sides; those of packages that are not installed are left out."""

    def side(name: str, *arguments: Any, **options: Any) -> Side:
        started = Side(name, *arguments, **options)
        held.callback(started.close)
        return started

    yield "Alluvia", side("ours", str(folder / "ours"), {})
    if "deltalake" in peers:
        yield "deltalake", side("deltalake", str(folder / "deltalake"), {})
    if "pyiceberg" in peers:
        yield "pyiceberg, SQLite", side("pyiceberg", str(folder / "iceberg"), {"catalog": str(folder / "iceberg")})
    for kind in DUCKLAKES if PEERS.is_dir() else ():
        if kind not in peers:
            continue
        where = held.enter_context(postgres(folder / "postgres")) if kind == "postgres" else kind
        if where is not None:
            yield f"DuckLake inlined, {kind}", side("ducklake", str(folder / f"lake-{kind}"), {}, where)


def _policies(folder: Path) -> list[Figure]:
    """Compare merges of due files with merges after a fixed number of commits: CPU time, bytes, and reads."""
    with ExitStack() as held:
        streams = {}
        for name, options in POLICIES.items():
            side = Side("ours", str(folder / name.replace(" ", "-")), {}, **options)
            held.callback(side.close)
            streams[name] = _Stream(side)
        done = _run(streams, BATCHES // 2)
        told = {name: each["told"] for name, each in done.items()}
    title, due = "Due merges", "when due"
    found = []
    for name in list(POLICIES)[1:]:
        found += [
            _figure(f"{title}: CPU of an append, merges included", streams[due].append_cpu, streams[name].append_cpu,
                    name, BATCHES // 2),
            Figure(f"{title}: bytes written again", megabytes(told[due]["merged_bytes"]),
                   f"{megabytes(told[name]['merged_bytes'])} ({name})",
                   told[due]["merged_bytes"] / told[name]["merged_bytes"]),
            Figure(f"{title}: most files before a merge", str(told[due]["files_max"]),
                   f"{told[name]['files_max']} ({name})", told[due]["files_max"] / told[name]["files_max"]),
        ]  # fmt: skip
    return found


def _over_s3(server: S3Server, folder: Path) -> list[Figure]:
    bucket = server.new_bucket()
    delays = [{"method": each, "match": "", "fault": f"delay:{DELAY_SECONDS}", "times": 10**9}
              for each in ("GET", "HEAD", "PUT")]  # fmt: skip
    iceberg = {
        "catalog": str(folder / "s3-catalog"),
        "s3.endpoint": server.endpoint_url,
        "s3.region": server.options["region"],
        "s3.access-key-id": server.options["access_key_id"],
        "s3.secret-access-key": server.options["secret_access_key"],
    }
    with ExitStack() as held:
        sides = {
            "Alluvia": ("ours", f"s3://{bucket}/ours", server.options),
            "deltalake": ("deltalake", f"s3://{bucket}/deltalake", delta_options(server)),
        } | ({"pyiceberg": ("pyiceberg", f"s3://{bucket}/iceberg", iceberg)} if PEERS.is_dir() else {})
        streams = {}
        for name, arguments in sides.items():
            side = Side(*arguments)
            held.callback(side.close)
            streams[name] = _Stream(side, S3_READS)
        server.inject(*delays)
        _run(streams, S3_BATCHES, S3_ROUND)
        ours = streams["Alluvia"]
        server.requests()
        ours.append(1)
        append = server.requests()
        ours.side.ask("read")
        first = server.requests()
        server.inject()
    title, more = f"{S3_BATCHES} batches over S3, 20 ms a request", S3_ROUND * _rounds_between(S3_BATCHES, S3_ROUND)
    found = [
        _within_two(title, ours, f"an append sends {shown(append)}, the read after it {shown(first)}"),
        Figure(f"{title}: slowest first read after {more} more of them, warm",
               milliseconds(max(ours.firsts[1:-1])),
               f"{milliseconds(ours.firsts[-1])} (Alluvia, first after maintenance)",
               max(ours.firsts[1:-1]) / ours.firsts[-1]),
    ]  # fmt: skip
    for name, peer in streams.items():
        if name != "Alluvia":
            found += [
                _figure(f"{title}: CPU of an append, merges included", ours.append_cpu, peer.append_cpu, name,
                        S3_BATCHES, bar=True),
                _figure(f"{title}: CPU of a read at its slowest", max(ours.moments[:-1]), max(peer.moments[:-1]), name),
                _figure(f"{title}: CPU of a read after maintenance", ours.moments[-1], peer.moments[-1], name),
            ]  # fmt: skip
    return found
