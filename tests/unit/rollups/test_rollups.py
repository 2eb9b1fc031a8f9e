"""Rollups from end to end: what a refresh does, and what it reads.

With light engines: `test_large_rollups.py` has processes compute a rollup, as users do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.store import CountingStore
from tests.light_engines import light as light  # noqa: PLC0414 - a fixture
from tests.unit.operations.races import Race
from tests.unit.rollups.hits import DAYS, HITS, MEANS, START, event, rows


def test_a_rollup_is_filled_when_it_is_created(hits: Table) -> None:
    assert rows(hits) == START
    assert [str(field.type) for field in hits.schema] == ["date32[day]", "string", "int64", "int64"]
    assert hits.snapshot().settings.sort_by == ("day", "path")
    clustered = hits.lake.create_rollup("clustered", HITS, cluster_by=["path", "day"])
    assert (clustered.snapshot().settings.cluster_by, clustered.snapshot().settings.sort_by) == (("path", "day"), ())
    assert rows(clustered) == START


def test_appended_rows_are_folded_into_their_groups(events: Table, hits: Table) -> None:
    events.append([event(0, n=5), event(2), event(1, None, 7)])
    report = hits.refresh()
    assert (report.mode, report.groups, report.source_version, report.tries) == ("folded", 3, 2, 1)
    assert rows(hits) == {(DAYS[0], "/", 3, 7), (DAYS[1], None, 2, 7), (DAYS[2], "/", 1, 1)}


def test_rows_that_are_deleted_or_changed_have_their_groups_recomputed(events: Table, hits: Table) -> None:
    events.delete("path IS NULL")
    events.update({"path": "'/docs'"}, where="n = 1")
    report = hits.refresh()
    assert (report.mode, report.groups) == ("recomputed", 3)
    assert rows(hits) == {(DAYS[0], "/docs", 2, 2)}


def test_what_the_source_lets_expire_stays(lake: Lake, events: Table, hits: Table, clock: ManualClock) -> None:
    events.evolve(properties={"alluvia.ttl": "2 days"})
    clock.advance(datetime(2026, 1, 4, 12, tzinfo=UTC).timestamp() - clock.now_us() / 1e6)
    assert events.expire().rows == 2
    assert events.count() == 1
    events.append([event(3)])
    assert hits.refresh().mode == "folded"
    assert rows(hits) == rows(lake.sql("SELECT * FROM hits_live")) == {*START, (DAYS[3], "/", 1, 1)}
    events.restore(version=1)
    hits.refresh()
    assert rows(hits) == START


def make_expiring(lake: Lake, clock: ManualClock) -> tuple[Table, Table]:
    """Return a source with rows of two days in two files, and a rollup; then all of the first day expires."""
    clock.advance(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp() - clock.now_us() / 1e6)
    given = {"alluvia.ttl": "2 days"}
    columns = {"day": "date", "path": "string", "n": "long"}
    events = lake.create_table("events", columns, partition_by=["day"], properties=given)
    events.append([event(0)])
    events.append([event(0), event(1)])
    hits = lake.create_rollup("hits", HITS)
    events.optimize(full=True)
    clock.advance(2 * 86400)
    assert events.expire().rows == 2
    return events, hits


OLD, NEW = (DAYS[0], "/", 2, 2), (DAYS[1], "/", 1, 1)


def test_what_expired_and_is_restored_again_and_again_counts_once(lake: Lake, clock: ManualClock) -> None:
    events, hits = make_expiring(lake, clock)
    for _ in range(3):
        hits.refresh()
        events.restore(version=2)
        assert rows(lake.sql("FROM hits_live")) == {OLD, NEW}
        hits.refresh()
        assert rows(hits) == {OLD, NEW}
        events.expire()


def test_only_groups_that_lost_rows_are_recomputed(lake: Lake, clock: ManualClock) -> None:
    """A delete elsewhere costs no group what expired of it, and neither does an update that is taken back."""
    events, hits = make_expiring(lake, clock)
    events.append([event(0, n=7), event(2), event(3)])
    events.delete("day = DATE '2026-01-03'")
    events.update({"n": "n + 1"}, where="day = DATE '2026-01-02'")
    events.update({"n": "n - 1"}, where="day = DATE '2026-01-02'")
    wanted = {(DAYS[0], "/", 3, 9), NEW, (DAYS[3], "/", 1, 1)}
    assert rows(lake.sql("FROM hits_live")) == wanted
    report = hits.refresh()
    assert (report.mode, report.groups) == ("folded", 2)
    assert rows(hits) == wanted
    events.append([event(0, n=7)])
    events.delete("day = DATE '2026-01-04'")
    report = hits.refresh()
    assert (report.mode, report.groups) == ("recomputed", 2)
    assert rows(hits) == {(DAYS[0], "/", 4, 16), NEW}


def test_a_rollup_is_not_rebuilt_unasked_where_rows_of_its_source_have_expired(
    lake: Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, hits = make_expiring(lake, clock)
    hits.refresh()
    monkeypatch.setattr("alluvia.rollups.change.REBUILD_BYTES_MIN", 0)
    events.update({"path": "'/docs'"})
    hits.refresh()
    kept = {OLD, (DAYS[1], "/docs", 1, 1)}
    assert rows(hits) == kept  # although the changes are larger than the table
    events.update({"path": "'/'"})
    clock.advance(3600)
    events.vacuum(timedelta(0))
    refused = r"the rollup hits .*: the changes of version 6 of events have expired.*"
    for attempt in (hits.refresh, lambda: lake.sql("FROM hits_live")):
        with pytest.raises(Invalid, match=refused + r"rows of events have expired.*refresh\(rebuild=True\)"):
            attempt()
    assert rows(hits) == kept
    report = hits.refresh(rebuild=True)
    assert (report.mode, report.reason) == ("rebuilt", "it was asked for")
    assert rows(hits) == {NEW}


def test_erasure_is_taken_over_while_its_changes_can_be_read(lake: Lake, clock: ManualClock) -> None:
    events, hits = make_expiring(lake, clock)
    lake.create_rollup("broken", "SELECT day, sum(path::INT) AS n FROM events GROUP BY day", fill=False)
    events.append([event(1, "/secret"), event(3)])
    report = events.erase("path = '/secret'", prove=True)
    assert (report.rows, report.ok, list(report.rollups_failed)) == (1, True, ["broken"])
    events.append([event(3)])
    hits.refresh()
    assert rows(hits) == {OLD, NEW, (DAYS[3], "/", 2, 2)}


def test_much_change_is_applied_in_steps_of_versions(
    lake: Lake, events: Table, hits: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alluvia.rollups.change.STEP_BYTES", 600 << 10)
    for number in range(4):
        events.append([event(number), event(4, n=number)])
    events.delete("day = DATE '2026-01-02'")
    before = hits.version
    report = hits.refresh()
    assert (report.mode, report.source_version, report.version - before) == ("recomputed", 6, 3)
    wanted = rows(lake.sql(HITS))
    assert rows(hits) == wanted
    assert hits.freshness().versions_behind == 0


def test_many_small_files_that_were_merged_since_are_not_read_one_by_one(
    lake: Lake, events: Table, hits: Table, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alluvia.rollups.change.REBUILD_BYTES_MIN", 2 << 20)
    for _ in range(10):
        events.append([event(0)])
    events.optimize(full=True)
    store.reset()
    report = hits.refresh()
    assert (report.mode, report.reason) == ("rebuilt", "the changes of events are larger than the table")
    assert rows(hits) == {(DAYS[0], "/", 12, 12), (DAYS[1], None, 1, None)}
    read = [key for _, key in store.keys if key.startswith("events/day") and key.endswith(".parquet")]
    assert len(set(read)) <= 2


def test_a_source_with_columns_that_the_change_feed_uses_too(lake: Lake) -> None:
    source = lake.create_table("e", {"_change_type": "string", "_commit_version": "long", "Sign": "long"})
    source.append([{"_change_type": "insert", "_commit_version": 1, "Sign": 3}])
    query = 'SELECT _change_type AS c, sum(_commit_version) AS s, max("Sign") AS t FROM e GROUP BY 1'
    rollup = lake.create_rollup("r", query)
    source.update({"_change_type": "'delete'", "_commit_version": "7"})
    assert rollup.refresh().mode == "recomputed"
    assert rows(rollup) == {("delete", 7, 3)}


def test_rows_of_a_rollup_cannot_expire(lake: Lake, events: Table, hits: Table) -> None:
    message = "alluvia.ttl: rows of a rollup cannot expire"
    with pytest.raises(Invalid, match=message):
        lake.create_rollup("other", HITS, partition_by=["day"], properties={"alluvia.ttl": "30 days"})
    by_day = lake.create_rollup("by_day", HITS, partition_by=["day"])
    with pytest.raises(Invalid, match=message):
        by_day.evolve(properties={"alluvia.ttl": "30 days"})
    assert lake.rollups() == ["by_day", "hits"]


def test_a_restore_is_followed(events: Table, hits: Table) -> None:
    events.append([event(3)])
    hits.refresh()
    events.restore(version=1)
    assert hits.refresh().mode == "recomputed"
    assert rows(hits) == START


def test_a_merge_of_the_source_touches_no_group(events: Table, hits: Table) -> None:
    events.append([event(0, n=3)])
    hits.refresh()
    before = hits.version
    assert events.optimize(full=True).files_removed
    report = hits.refresh()
    assert (report.mode, report.groups, report.rows, report.version) == ("nothing", 0, 0, before + 1)
    assert hits.freshness().versions_behind == 0
    assert hits.refresh().version == before + 1  # nothing is left to record


def test_appended_rows_that_were_merged_since_are_folded_too(events: Table, hits: Table) -> None:
    events.append([event(0, n=5)])
    events.optimize(full=True)
    events.append([event(0, n=7)])
    assert hits.refresh().mode == "folded"
    assert rows(hits) == {(DAYS[0], "/", 4, 14), (DAYS[1], None, 1, None)}


def test_a_change_of_a_column_that_the_query_does_not_name_touches_no_group(lake: Lake, events: Table) -> None:
    days = lake.create_rollup("days", "SELECT day, count(*) AS c FROM events GROUP BY day")
    events.update({"n": "100"}, where="n = 1")
    assert days.refresh().groups == 0


def test_where_changes_have_expired_the_rollup_is_rebuilt(events: Table, hits: Table, clock: ManualClock) -> None:
    events.append([event(0, n=3), event(4)])
    events.update({"n": "10"}, where="n = 3")
    clock.advance(3600)
    events.vacuum(timedelta(0))
    report = hits.refresh()
    assert (report.mode, report.groups) == ("rebuilt", None)
    assert report.reason is not None
    assert report.reason.startswith("the changes of version 2 of events have expired")
    assert rows(hits) == {(DAYS[0], "/", 3, 12), (DAYS[1], None, 1, None), (DAYS[4], "/", 1, 1)}
    assert hits.history(1)[0].parameters["reason"] == report.reason


def test_where_changes_are_larger_than_the_table_the_rollup_is_rebuilt(
    events: Table, hits: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alluvia.rollups.change.REBUILD_BYTES_MIN", 0)
    events.update({"path": "'/docs'"})
    report = hits.refresh()
    assert (report.mode, report.reason) == ("rebuilt", "the changes of events are larger than the table")
    assert rows(hits) == {(DAYS[0], "/docs", 2, 2), (DAYS[1], "/docs", 1, None)}


def test_a_source_that_was_dropped_and_created_again_is_another(lake: Lake, events: Table, hits: Table) -> None:
    from alluvia.operations.tables.drop import drop_table

    before, dropped_in = rows(hits), events.version + 1
    drop_table(lake.catalog.handle("events"))
    with pytest.raises(Invalid, match="the rollup hits has lost its source; bring it back, or drop the rollup"):
        hits.refresh()
    assert hits.freshness().newest_source_version is None
    assert lake.sql("FROM hits_freshness").to_pylist()[0]["versions_behind"] is None
    with pytest.raises(Invalid, match="the rollup hits has lost its source"):
        lake.sql("FROM hits_live")
    lake.create_table("events", {"day": "date", "path": "string", "n": "long"}).append([event(4, "new", 9)])
    report = hits.refresh()
    assert (report.mode, report.reason) == ("rebuilt", "events was dropped and created again")
    assert rows(hits) == {(DAYS[4], "new", 1, 9)}
    drop_table(lake.catalog.handle("events"))
    lake.undrop("events", version=dropped_in)
    assert hits.freshness().source_version is None
    report = hits.refresh()
    assert (report.mode, rows(hits)) == ("rebuilt", before)
    assert "another table was called events meanwhile" in str(report.reason)


def test_a_rollup_that_is_created_again_was_empty(lake: Lake, events: Table, hits: Table) -> None:
    lake.drop_table("hits")
    again = lake.create_rollup("hits", HITS, fill=False)
    assert (again.refresh().reason, len(rows(again))) == ("it was empty", 2)


def test_a_rollup_of_a_rollup(lake: Lake, events: Table, hits: Table) -> None:
    monthly = lake.create_rollup("monthly", "SELECT year(day) AS year, sum(hits) AS hits FROM hits GROUP BY 1")
    events.append([event(2)])
    hits.refresh()
    monthly.refresh()
    assert rows(monthly) == {(2026, 4)}


def test_a_rollup_without_groups_has_one_row(lake: Lake, events: Table) -> None:
    whole = lake.create_rollup("whole", "SELECT count(*) AS c, max(n) AS hi FROM events WHERE n > 1")
    assert rows(whole) == {(0, None)}
    events.append([event(0, n=5)])
    assert whole.refresh().mode == "folded"
    assert rows(whole) == {(1, 5)}
    events.delete("n = 5")
    assert whole.refresh().mode == "recomputed"
    assert rows(whole) == {(0, None)}


def test_only_files_that_can_hold_the_groups_are_read(lake: Lake, events: Table, store: CountingStore) -> None:
    means = lake.create_rollup("means", MEANS)
    for day in range(2, 5):
        events.append([event(day, n=1)])
    means.refresh()
    events.append([event(3, n=3)])
    store.reset()
    assert means.refresh().mode == "recomputed"
    read = {key.split("/")[1] for _, key in store.keys if key.startswith("events/") and key.endswith(".parquet")}
    assert read == {f"day={DAYS[3]}"}
    assert (DAYS[3], 2.0) in rows(means)


def test_files_that_hold_only_null_keys_are_read_too(lake: Lake, events: Table) -> None:
    by_path = lake.create_rollup(
        "by_path", "SELECT path, count(*) AS c, avg(n) AS mean FROM events GROUP BY path", partition_by=["path"]
    )
    events.append([event(0, n=4), event(1, None, 7)])
    assert by_path.refresh().mode == "recomputed"
    assert rows(by_path) == {("/", 3, 2.0), (None, 2, 7.0)}


def test_two_refreshes_at_once_apply_a_version_once(lake: Lake, events: Table, hits: Table) -> None:
    events.append([event(0, n=5)])
    race = Race(lake)
    race.store.winners = [lambda: race.theirs.table("hits").refresh()]
    report = race.ours.table("hits").refresh()
    assert (report.mode, report.tries) == ("nothing", 2)
    assert (DAYS[0], "/", 3, 7) in rows(hits)


def test_a_refresh_that_lost_to_another_applies_what_came_since(lake: Lake, events: Table, hits: Table) -> None:
    events.append([event(0, n=5)])
    race = Race(lake)

    def win() -> None:
        race.theirs.table("hits").refresh()
        race.theirs.table("events").append([event(0, n=7)])

    race.store.winners = [win]
    report = race.ours.table("hits").refresh()
    assert (report.mode, report.tries, report.source_version) == ("folded", 2, 3)
    assert (DAYS[0], "/", 4, 14) in rows(hits)


@pytest.mark.parametrize(
    ("query", "column", "mode"),
    [
        ("SELECT lower(path) AS p, count(*) AS c FROM events WHERE p LIKE '/%' GROUP BY 1", "p", "folded"),
        ("SELECT day AS d, count(*) AS c FROM events GROUP BY d", "d", "folded"),
        ("SELECT upper(path) AS p, avg(n) AS a FROM events WHERE p = '/' OR n IS NULL GROUP BY p", "P", "recomputed"),
    ],
)
def test_a_new_column_of_the_source_does_not_take_over_a_name_in_the_query(
    lake: Lake, events: Table, query: str, column: str, mode: str
) -> None:
    named = lake.create_rollup("named", query)
    expected = rows(lake.sql(query.replace("events", "(FROM events UNION ALL FROM events)")))
    events.append([{**event(0), column: "x"}, event(0), event(1, None, None)], evolve=True)
    assert rows(lake.sql("FROM named_live")) == expected
    assert named.refresh().mode == mode
    assert rows(named) == expected
