"""`Lake.backup`: a copy of a lake at one moment, while writers go on, vacuum runs, and the backup itself is killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import alluvia
from alluvia.access import registry
from alluvia.api.lake import Lake
from alluvia.cli.command_line import cli
from alluvia.errors import Invalid, Unavailable
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.operations.backup.backup import BackupReport, backup_lake
from alluvia.store.wrapper import Wrapper
from tests.s3server import S3Server

ROWS = {"id": "long", "amount": "long"}


def bank(lake: Lake) -> None:
    """Make two tables whose amounts have the sum 0 at each moment."""
    for name in ("debit", "credit"):
        lake.create_table(name, ROWS)
    for number in range(15):
        book(lake, number)


def book(lake: Lake, number: int) -> None:
    with lake.transaction() as tx:
        tx.table("debit").append([{"id": number, "amount": -number}])
        tx.table("credit").append([{"id": number, "amount": number}])


def balance(lake: Lake) -> tuple[int, int]:
    """Return how many rows a copy has, and their sum."""
    text = "SELECT count(*) AS n, coalesce(sum(amount), 0)::BIGINT AS sum FROM (FROM debit UNION ALL FROM credit)"
    [row] = lake.sql(text).to_pylist()
    return row["n"], row["sum"]


class Between(Wrapper):
    """Calls `what` before the object of a number, of those whose key `matches`, is put."""

    def __init__(self, inner: alluvia.store.Store, at: int, what: Callable[[], None], matches: str) -> None:
        super().__init__(inner)
        self._left, self._what, self._matches = at, what, matches

    def put_new_file(self, key: str, path: Path) -> None:
        if self._matches in key:
            self._left -= 1
            if self._left == 0:
                self._what()
        super().put_new_file(key, path)


def backed_up(lake: Lake, copy: Path, at: int, what: Callable[[], None], matches: str = "") -> BackupReport:
    target = Lake(Between(alluvia.connect(copy).store, at, what, matches), lake.clock)
    return backup_lake(lake.catalog, target.catalog)


def killed() -> None:
    raise Unavailable("the process was killed")


def test_a_copy_is_a_lake_and_the_next_backup_copies_what_is_new(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    bank(lake)
    lake["debit"].delete("id = 3")
    lake["credit"].delete("id = 3")
    lake.sql("CREATE VIEW large AS SELECT id FROM credit WHERE amount > 10")
    first = lake.backup(tmp_path / "copy")
    assert (first.tables, first.files, first.copied_files, first.left_out) == (2, 28, 28, ())
    copy = alluvia.connect(tmp_path / "copy")
    assert balance(copy) == balance(lake) == (28, 0)
    assert copy.sql("SELECT id FROM large ORDER BY id").to_pylist() == [{"id": n} for n in range(11, 15)]
    for name in ("debit", "credit"):
        assert copy[name].version == lake[name].version
        assert DeltaTable(str(tmp_path / "copy" / name)).to_pyarrow_table().num_rows == 14
    for number in range(15, 27):
        book(lake, number)
    lake["credit"].optimize()
    lake.drop_table("debit")
    second = lake.backup(tmp_path / "copy")
    assert (second.tables, second.files, second.copied_files) == (1, 1, 1)
    again = alluvia.connect(tmp_path / "copy")
    assert again.tables() == ["credit"]
    assert again["credit"].to_arrow().sort_by("id").equals(lake["credit"].to_arrow().sort_by("id"))
    assert lake.backup(tmp_path / "copy").copied_files == 0
    assert lake.tags() == []
    assert again["credit"].verify(full=True).ok
    again["credit"].append([{"id": 100, "amount": 1}])  # the copy takes writes, from then on by itself
    with pytest.raises(Invalid, match="the copy of table credit was written to"):
        lake.backup(tmp_path / "copy")


def test_a_copy_knows_the_events_that_it_has_and_its_rollups_go_on(tmp_path: Path) -> None:
    def send(lake: Lake, number: int) -> int:
        event = RawEvent(0, {"event_id": f"e{number}", "event": "x"}, b"")
        return ingest_batch(lake.catalog, "events", [event], [], arrival_us=lake.clock.now_us()).stored

    lake = alluvia.connect(tmp_path / "lake")
    lake.create_events("events")
    lake.create_rollup("counts", "SELECT event, count(*) AS n FROM events GROUP BY event")
    assert [send(lake, number) for number in range(25)] == [1] * 25
    lake["counts"].refresh()
    send(lake, 25)
    lake.backup(tmp_path / "copy")
    copy = alluvia.connect(tmp_path / "copy")
    assert [send(copy, number) for number in (0, 24, 25, 26)] == [0, 0, 0, 1]
    copy["counts"].refresh()
    assert copy.sql("SELECT n FROM counts").to_pylist() == [{"n": 27}]


def test_writers_go_on_and_each_copy_is_of_one_moment(tmp_path: Path) -> None:
    lake, ends = alluvia.connect(tmp_path / "lake"), threading.Event()
    bank(lake)

    def write() -> None:
        writer = alluvia.connect(tmp_path / "lake")
        number = 100
        while not ends.is_set():
            book(writer, number)
            number += 1

    threads = [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    try:
        counts = []
        for _ in range(4):
            lake.backup(tmp_path / "copy")
            counts.append(balance(alluvia.connect(tmp_path / "copy")))
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert [total for _, total in counts] == [0] * 4
    assert sorted(counts) == counts
    assert balance(lake)[1] == 0


def test_vacuum_in_the_middle_takes_nothing_that_is_to_be_copied(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    bank(lake)

    def clean() -> None:
        other = alluvia.connect(tmp_path / "lake")
        for name in ("debit", "credit"):
            other[name].delete("id < 10")
            other[name].optimize()
            other[name].vacuum(retention=timedelta(0))

    done = backed_up(lake, tmp_path / "copy", 3, clean)
    assert (done.files, balance(alluvia.connect(tmp_path / "copy"))) == (30, (30, 0))
    clean()
    assert lake.tags() == []
    assert not list((tmp_path / "lake" / "_alluvia" / "kept").rglob("*.json"))


@pytest.mark.parametrize("at", [1, 5])
@pytest.mark.parametrize("matches", [".parquet", "_delta_log/"])
def test_a_backup_that_was_killed_goes_on(matches: str, at: int, tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    bank(lake)
    with pytest.raises(Unavailable):
        backed_up(lake, tmp_path / "copy", at, killed, matches)
    done = lake.backup(tmp_path / "copy")
    assert done.copied_files == (31 - at if matches == ".parquet" else 0)
    assert balance(alluvia.connect(tmp_path / "copy")) == (30, 0)
    for number in range(20, 25):
        book(lake, number)
    with pytest.raises(Unavailable):
        backed_up(lake, tmp_path / "copy", at, killed, matches)
    if matches == ".parquet":  # the copy is as it was
        assert balance(alluvia.connect(tmp_path / "copy")) == (30, 0)
    lake.backup(tmp_path / "copy")
    assert balance(alluvia.connect(tmp_path / "copy")) == (40, 0)


def test_backups_of_one_process_at_the_same_time_each_copy_their_own_lake(tmp_path: Path) -> None:
    lakes = [alluvia.connect(tmp_path / name) for name in ("one", "two")]
    for number, lake in enumerate(lakes):
        lake.create_table("t", ROWS).append([{"id": number, "amount": number}])

    def other() -> None:
        lakes[1].backup(tmp_path / "two.copy")

    backed_up(lakes[0], tmp_path / "one.copy", 1, other, ".parquet")
    for number, name in enumerate(("one.copy", "two.copy")):
        assert alluvia.connect(tmp_path / name).sql("FROM t").to_pylist() == [{"id": number, "amount": number}]


def test_a_file_that_the_copy_lost_is_found(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    bank(lake)
    lake.backup(tmp_path / "copy")
    next((tmp_path / "copy" / "debit").glob("part-*")).unlink()
    assert lake.backup(tmp_path / "copy").copied_files == 1
    assert balance(alluvia.connect(tmp_path / "copy")) == (30, 0)


def test_what_is_elsewhere_is_left_out_and_named(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    bank(lake)
    other = alluvia.connect(tmp_path / "other").create_table("theirs", ROWS)
    lake.attach("theirs", str(tmp_path / "other" / "theirs"))
    other.append([{"id": 1, "amount": 1}])
    lake.clone("debit", "twin")
    lake.clone("debit", "copied", deep=True)
    result = CliRunner().invoke(cli, ["backup", str(tmp_path / "copy"), "--lake", str(tmp_path / "lake"), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {each["table"]: each["why"].split(":")[0] for each in told["left_out"]} == {
        "theirs": f"attached from {tmp_path}/other/theirs",
        "twin": "a shallow clone",
    }
    assert "Note: table twin is not in the copy: a shallow clone" in result.stderr
    assert alluvia.connect(tmp_path / "copy").tables() == ["copied", "credit", "debit"]


def test_a_copy_is_verified_and_its_versions_have_gaps(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    for name in ("debit", "credit"):
        lake.create_table(name, ROWS)
    for number in range(3):
        book(lake, number)
    lake["credit"].optimize()
    lake.backup(tmp_path / "copy")
    found = CliRunner().invoke(cli, ["verify", "credit", "--full", "--lake", str(tmp_path / "copy")])
    version = lake["credit"].version
    assert found.exit_code == 0, found.output
    assert f"version {version}, readable from version 0 with gaps;" in found.output
    assert f"versions below {version} cannot all be read" in found.output


def test_an_external_table_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "prices.csv").write_text("id,price\n1,2.5\n")
    lake = alluvia.connect(tmp_path / "lake")
    bank(lake)
    lake.create_external("prices", [str(tmp_path / "theirs" / "*.csv")])
    assert lake.sql("SELECT price FROM prices").to_pylist() == [{"price": 2.5}]
    done = lake.backup(tmp_path / "copy")
    assert [(each.table, each.why) for each in done.left_out] == [
        ("prices", "external: its files are outside the lake, so create it again in the copy"),
    ]
    assert (done.tables, alluvia.connect(tmp_path / "copy").tables()) == (2, ["credit", "debit"])


def test_tokens_of_a_key_that_was_removed_end_in_the_copy_too(tmp_path: Path) -> None:
    lake, copy = (alluvia.connect(tmp_path / name) for name in ("lake", "copy"))
    keys = [registry.add_key(lake.store, lake.clock, bytes([number] * 32)).id for number in (1, 2)]
    lake.backup(tmp_path / "copy")
    assert registry.key_ids(copy.store) == sorted(keys)
    registry.remove_key(lake.store, keys[0])
    lake.backup(tmp_path / "copy")
    assert registry.key_ids(copy.store) == [keys[1]]


def test_a_place_that_is_not_of_this_lakes_backups_is_refused(tmp_path: Path) -> None:
    lake, other = (alluvia.connect(tmp_path / name) for name in ("lake", "other"))
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    other.create_table("t", pa.schema([("id", pa.int64())]))
    other.backup(tmp_path / "copy")
    for place, message in (
        ("other", "holds other things than a backup"),
        ("copy", "is a backup of"),
        ("lake/inside", "overlap"),
        ("", "overlap"),
    ):
        with pytest.raises(Invalid, match=message):
            lake.backup(tmp_path / place)
    assert lake.tags() == []
    with pytest.raises(Invalid, match="not a branch"):
        lake.branch("b").backup(tmp_path / "of-branch")


def test_a_lake_on_s3_goes_to_another_prefix_and_to_a_directory(s3_server: S3Server, tmp_path: Path) -> None:
    options, bucket = s3_server.options, s3_server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}/lake", **options)
    bank(lake)
    lake.backup(f"s3://{bucket}/copy", **options)
    book(lake, 50)
    done = lake.backup(f"s3://{bucket}/copy", **options)
    assert done.copied_files == 2
    assert balance(alluvia.connect(f"s3://{bucket}/copy", **options)) == (32, 0)
    alluvia.connect(f"s3://{bucket}/copy", **options).backup(tmp_path / "here")
    assert balance(alluvia.connect(tmp_path / "here")) == (32, 0)
