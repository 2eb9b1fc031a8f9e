"""A backfill makes of lines what ingestion makes of them: no line is lost, and each is counted as what it became."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake
from alluvia.cli.command_line import cli
from alluvia.commit.event_window import id_files
from alluvia.delta.odd_times import odd_times_in
from alluvia.errors import AlluviaError, Invalid, TableNotFound
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import IngestOutcome, Limits, OddTimes
from alluvia_spark import backfill, checking
from alluvia_spark.backfill_job import execute, known_ids
from alluvia_spark.backfill_job.job import ROWS, Report, Written
from alluvia_spark.sources import manifest, source
from tests.examples import seeds_from
from tests.spark import faults

pytestmark = pytest.mark.slow

COLUMNS = {"event_id": "string", "ts": "timestamp", "received_at": "timestamp", "n": "long"}
NDJSON = "application/x-ndjson"


def _line(event_id: str, n: object = 1, day: int = 1) -> bytes:
    return orjson.dumps({"event_id": event_id, "ts": f"2026-01-{day:02}T00:00:00Z", "n": n})


BAD = [_line(f"bad{number}", "two") for number in range(3)]


def make_lake(place: Path) -> Lake:
    lake = alluvia.connect(str(place))
    lake.create_table("ev", COLUMNS, ["day(ts)"])
    return lake


def _ingest(lake: Lake, lines: list[bytes]) -> IngestOutcome:
    body = split(b"\n".join(lines), content_type=NDJSON, content_encoding=None, limits=Limits())
    return ingest_batch(lake.catalog, "ev", body.events, body.rejects, arrival_us=1)


def _ids(lake: Lake, table: str) -> list[str]:
    try:
        return sorted(lake.table(table).scan(["event_id"]).read_all()["event_id"].to_pylist())
    except TableNotFound:
        return []


Fill = Callable[..., Report]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_lake(tmp_path / "lake")


@pytest.fixture
def fill(spark: SparkSession, lake: Lake, tmp_path: Path) -> Fill:
    def run(lines: list[bytes], job_id: str = "job", **options: Any) -> Report:
        file = tmp_path / "in" / f"{job_id}.ndjson"
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            file.write_bytes(b"".join(line + b"\n" for line in lines))
        return backfill.run(lake.uri, "ev", str(file), job_id, spark=spark, **options)

    return run


def test_a_reject_and_a_row_that_come_twice_take_nothing_with_them(lake: Lake, fill: Fill) -> None:
    report = fill([_line("a"), _line("b"), _line("c"), _line("a"), *[_line("x", "two")] * 4, *BAD])
    assert _ids(lake, "ev") == ["a", "b", "c"]
    assert len(_ids(lake, "ev/_rejects")) == 4
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (3, 1, 7, 0)


def test_rows_that_the_table_holds_take_no_reject_with_them(lake: Lake, fill: Fill) -> None:
    live = [_line(f"e{number}") for number in range(100)]
    _ingest(lake, live)
    report = fill([*live, b"{broken"])
    assert len(_ids(lake, "ev")) == 100
    assert len(_ids(lake, "ev/_rejects")) == 1
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (0, 100, 1, 0)


def test_an_event_that_the_table_knows_with_other_content_is_a_reject(lake: Lake, fill: Fill) -> None:
    _ingest(lake, [_line("a", 1), _line("b", 1)])
    report = fill([_line("a", 2), _line("b", 1), _line("a", 2)])
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (0, 1, 2, 2)
    assert report.stored_rejects == len(_ids(lake, "ev/_rejects")) == 1


def test_ingestion_knows_the_rejects_of_a_backfill_and_a_backfill_those_of_ingestion(lake: Lake, fill: Fill) -> None:
    _ingest(lake, BAD[:1])
    report = fill(BAD)
    assert (report.lines, report.rejects, report.stored_rejects) == (3, 3, 2)
    _ingest(alluvia.connect(lake.uri), BAD)
    assert len(_ids(lake, "ev/_rejects")) == 3


def test_a_clash_that_a_restore_makes_of_a_row_is_kept(lake: Lake, fill: Fill) -> None:
    """The job had run before, and its rejects with it: none of them was written again."""
    lines = [_line("a", 1), b"{broken"]
    assert fill(lines).rows == 1
    lake["ev"].restore(version=0)
    _ingest(lake, [_line("a", 2)])
    report = fill(lines)
    assert (report.rows, report.rejects, report.conflicting, report.stored_rejects) == (0, 2, 1, 1)
    assert len(_ids(lake, "ev/_rejects")) == 2


def test_ids_that_leave_ranges_empty_are_committed(lake: Lake, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many lines of one id, all were in one range, and the commit missed the objects of the others."""
    monkeypatch.setattr(id_files, "RANGE_IDS", 2)
    monkeypatch.setattr(known_ids, "IDS_IN_COMMIT_MAX", 0)
    report = fill([*[_line("a")] * 9, *[BAD[0]] * 9])
    assert (report.rows, report.duplicates, report.rejects, report.stored_rejects) == (1, 8, 9, 1)
    later = alluvia.connect(lake.uri)
    assert _ingest(later, [_line("a"), *BAD, *[_line(f"n{number}") for number in range(20)]]).stored == 20
    assert len(_ids(lake, "ev/_rejects")) == 3


class _Pair:
    """A lake that gets lines by backfills, and one that gets the same lines by ingestion."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark
        self.filled, self.posted = (make_lake(folder / name) for name in ("filled", "posted"))
        self.versions = [(0, 0)]

    def ingest(self, lines: list[bytes], key: str) -> None:
        for lake in (self.filled, self.posted):
            self._post(lake, lines, key)

    def _post(self, lake: Lake, lines: list[bytes], key: str) -> IngestOutcome:
        body = split(b"\n".join(lines), content_type=NDJSON, content_encoding=None, limits=Limits())
        return ingest_batch(lake.catalog, "ev", body.events, body.rejects, arrival_us=1, idempotency_key=key)

    def deliver(self, lines: list[bytes], key: str, **options: Any) -> None:
        """Backfill lines into one lake and ingest them into the other, and compare what is said of them."""
        folder = self.folder / key
        if not folder.exists():
            folder.mkdir()
            third = -(-len(lines) // 3)
            for at in range(3):  # in the order of their names
                (folder / f"{at}.ndjson").write_bytes(b"".join(line + b"\n" for line in lines[at * third :][:third]))
        report = backfill.run(self.filled.uri, "ev", str(folder), key, spark=self.spark, **options)
        answer = self._post(self.posted, lines, key)
        said = (report.rows, report.duplicates, report.rejects, report.conflicting)
        assert said == (answer.stored, answer.duplicates, answer.rejected, answer.conflicting)
        assert report.lines == len(lines)

    def remember(self) -> None:
        self.versions.append((self.filled["ev"].version, self.posted["ev"].version))

    def restore(self, step: int) -> None:
        for lake, version in zip((self.filled, self.posted), self.versions[step], strict=True):
            lake["ev"].restore(version=version)

    def check(self) -> None:
        """Compare all rows, and all rejects but for their places."""
        rows = [
            sorted((row["event_id"], row["ts"], row["n"]) for row in lake["ev"].scan().read_all().to_pylist())
            for lake in (self.filled, self.posted)
        ]
        assert rows[0] == rows[1]
        assert self._rejects(self.filled) == self._rejects(self.posted)

    @staticmethod
    def _rejects(lake: Lake) -> list[tuple[str, bytes]]:
        try:
            rows = lake.table("ev/_rejects").scan(["reason", "raw"]).read_all().to_pylist()
        except TableNotFound:
            return []
        return sorted((row["reason"], row["raw"]) for row in rows)


def _lines(chance: random.Random) -> list[bytes]:
    """Return lines of few ids: rows, repeats, other content, values that do not fit, and what is no JSON."""
    kinds = ["row"] * 6 + ["other", "bad", "bad", "broken"]
    found = []
    for _ in range(chance.randrange(4, 40)):
        name, kind = chance.choice("abcdefghij"), chance.choice(kinds)
        day = 1 + ord(name) % 3  # an event that the table holds on another day is not found
        n = {"row": 1, "other": chance.randrange(2, 4), "bad": "two"}.get(kind)
        found.append(b"{broken" if kind == "broken" else _line(name, n, day))
    return found


@pytest.mark.parametrize("seed", seeds_from(0, 2))
def test_a_backfill_makes_of_lines_what_ingestion_makes_of_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also with several splits and ranges of ids, events that are there, restores, and workers that fail or die."""
    chance = random.Random(seed)
    if seed % 3:
        monkeypatch.setattr(manifest, "OPEN_COST_BYTES", 0)
        monkeypatch.setattr(execute, "SPLIT_BYTES_MIN", 100)
        monkeypatch.setattr(source, "CUT_BYTES_MIN", 100)
        monkeypatch.setattr(id_files, "RANGE_IDS", 5)
    pair = _Pair(tmp_path, spark)
    if chance.random() < 0.7:
        pair.ingest(_lines(chance), "live")
    pair.remember()
    first = _lines(chance)
    fails = {"stores": partial(faults.open_failing, tmp_path / "failed", seed % 4 == 1)} if seed % 2 else {}
    pair.deliver(first, "first", **fails)
    assert (tmp_path / "failed").exists() == bool(fails)
    pair.check()
    pair.remember()
    pair.deliver(_lines(chance), "second")
    pair.check()
    if seed % 2 == 0:
        pair.restore(chance.randrange(3))
        pair.ingest(_lines(chance), "later")
        pair.deliver(_lines(chance), "third")
        pair.check()


def test_a_job_that_lost_a_line_commits_nothing(lake: Lake, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(*args: Any) -> list[Written]:
        written = execute_tasks(*args)
        return [replace(each, rows=each.rows - (each.table == ROWS)) for each in written]

    execute_tasks = execute._Run._write
    monkeypatch.setattr(execute._Run, "_write", losing)
    with pytest.raises(AlluviaError, match=r"rows made, and those written, duplicates and conflicting: 2 and 1"):
        fill([_line("a"), _line("b"), *BAD])
    assert lake["ev"].version == 0
    assert _ids(lake, "ev/_rejects") == []


def _verify(lake: Lake, spark: SparkSession, tmp_path: Path, **options: Any) -> checking.Verification:
    return checking.verify(lake.uri, "ev", str(tmp_path / "in" / "job.ndjson"), "job", spark=spark, **options)


def test_a_job_that_has_lost_nothing_is_verified(
    lake: Lake, fill: Fill, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_files, "RANGE_IDS", 5)
    lines = [_line("a"), _line("b"), _line("a"), _line("a", 2), _line("a", 2), *BAD, BAD[0], b"", b"{broken", b"[1]"]
    fill(lines)
    done = _verify(lake, spark, tmp_path)
    assert (done.lines, done.missing, done.listed) == (11, 0, ())


def test_a_job_is_verified_whose_lines_were_in_the_table_and_clash_with_lines_before_them(
    lake: Lake, fill: Fill, spark: SparkSession, tmp_path: Path
) -> None:
    fill([_line("a", 1), _line("b", 1), _line("c", 1)], "live")
    report = fill([_line("a", 2), _line("a", 1), _line("b", 1), _line("b", 2), _line("c", 2)])
    assert (report.rows, report.duplicates, report.rejects) == (0, 2, 3)
    assert _verify(lake, spark, tmp_path).missing == 0
    lake.sql("DELETE FROM ev._rejects WHERE event_id LIKE 'a#%' OR event_id LIKE 'c#%'")
    assert [each.split("#")[0] for each in _ids(lake, "ev/_rejects")] == ["b"]
    assert [line.raw for line in _verify(lake, spark, tmp_path).listed] == [_line("a", 2), _line("c", 2)]


def test_a_job_is_verified_in_the_version_before_its_row_was_undone_and_sent_with_other_content(
    lake: Lake, fill: Fill, spark: SparkSession, tmp_path: Path
) -> None:
    assert fill([_line("a", 1)]).rows == 1
    version = lake["ev"].version
    lake["ev"].restore(version=0)
    _ingest(lake, [_line("a", 2)])
    assert _verify(lake, spark, tmp_path, version=version).missing == 0
    assert _verify(lake, spark, tmp_path).missing == 1


def test_a_job_is_verified_after_its_rejects_were_replayed(
    lake: Lake, fill: Fill, spark: SparkSession, tmp_path: Path
) -> None:
    fill([_line("a"), _line("x", "two"), _line("y", "7"), b"{broken"])
    assert len(_ids(lake, "ev/_rejects")) == 3
    lake["ev"].evolve(drop=["n"])
    lake["ev"].evolve(add={"n": "string"})
    lake["ev"].replay_rejects()
    assert _ids(lake, "ev") == ["a", "x", "y"]
    assert _verify(lake, spark, tmp_path).missing == 0


def test_what_a_job_has_lost_is_found_and_loaded(
    lake: Lake, fill: Fill, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release dropped a row for each reject that came twice, and the other way round."""
    monkeypatch.setattr(execute, "SPLIT_BYTES_MIN", 100)
    monkeypatch.setattr(manifest, "OPEN_COST_BYTES", 0)
    monkeypatch.setattr(source, "CUT_BYTES_MIN", 100)
    lines = [_line("a"), _line("b"), _line("c", 1, 2), _line("c", 2, 2), *BAD, b"{broken", b'{"n":3}']
    fill(lines)
    lake["ev"].delete("event_id = 'b' OR n = 3")
    lake.sql("DELETE FROM ev._rejects WHERE event_id LIKE 'bad1%' OR event_id LIKE 'c%' OR reason LIKE '%JSON%'")
    done = _verify(lake, spark, tmp_path)
    file = (tmp_path / "in" / "job.ndjson").as_uri()
    found = [(line.file, line.raw) for line in done.listed]
    assert (done.lines, done.missing) == (9, 5)
    assert sorted(found) == sorted((file, lines[at]) for at in (1, 3, 5, 7, 8))
    assert [lines.index(line.raw) for line in done.listed] == sorted(lines.index(line.raw) for line in done.listed)
    assert _verify(lake, spark, tmp_path, version=lake["ev"].version - 1).missing == 3

    words = ["backfill", "--lake", lake.uri, "ev", str(tmp_path / "in" / "job.ndjson")]
    told = CliRunner().invoke(cli, [*words, "--job-id", "job", "--verify", "--json"])
    assert told.exit_code == 1
    assert [orjson.loads(text)["raw"].encode() for text in told.stdout.splitlines()] == [
        line.raw for line in done.listed
    ]
    assert "5 of 9 lines of job job were stored neither as rows of ev, version" in told.stderr
    assert "--repair-of job" in told.stderr
    repaired = CliRunner().invoke(cli, [*words, "--repair-of", "job", "--json"])
    assert repaired.exit_code == 0, repaired.output
    report = orjson.loads(repaired.stdout)
    assert (report["job_id"], report["rows"], report["stored_rejects"]) == ("job.repair", 2, 3)
    assert lake["ev"].count() == 4
    assert CliRunner().invoke(cli, [*words, "--job-id", "job", "--verify"]).exit_code == 0


def test_only_a_job_that_has_begun_is_verified_or_repaired(lake: Lake, fill: Fill, spark: SparkSession) -> None:
    with pytest.raises(Invalid, match="this table has no backfill with job_id 'never'"):
        checking.verify(lake.uri, "ev", "x", "never", spark=spark)
    with pytest.raises(Invalid, match="this table has no backfill with job_id 'never'"):
        fill([_line("a")], repair_of="never")


def test_times_that_cannot_be_read_are_counted_as_ingestion_counts_them(lake: Lake, fill: Fill) -> None:
    lake.table("ev").evolve({"properties": "string"})  # which keeps the text
    noon = [b'{"event_id":"%b","ts":"noon"}' % name for name in (b"b", b"c", b"b")]
    others = [_line(f"e{at}", day=at % 9 + 1) for at in range(400)]
    report = fill([_line("a"), *noon, b'{"event_id":"d","ts":"2999-01-01"}', *others])
    expected = {"unreadable": OddTimes(3, "ts", "noon"), "future": OddTimes(1, "ts", "2999-01-01")}
    assert (report.rows, report.duplicates, report.odd_times) == (404, 1, expected)
    assert report.said()["unreadable_times"] == {"events": 3, "field": "ts", "value": "noon"}
    assert odd_times_in(lake.table("ev").snapshot().files) == {"unreadable": 2, "future": 1}
    lake.table("ev").evolve(properties={"alluvia.unreadable_time": "reject"})
    again = fill([b'{"event_id":"f","ts":"noon"}', _line("g")], "strict")
    assert (again.rows, again.rejects, again.odd_times) == (1, 1, {})
