"""Rollups: definitions and writes that are refused, and live rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError, Invalid, TableExists, TableNotFound
from tests.light_engines import light as light  # noqa: PLC0414 - a fixture
from tests.rejects import create_rejects
from tests.unit.rollups.hits import DAYS, HITS, MEANS, START, event, rows


@pytest.mark.parametrize("given", [{"day": "date", "n": "double"}, {"day": "date", "N": "long"}])
def test_a_source_that_no_longer_has_the_columns_is_refused(lake: Lake, hits: Table, given: dict[str, str]) -> None:
    from alluvia.operations.tables.drop import drop_table

    totals = lake.create_rollup("totals", "SELECT day, sum(n) AS total FROM events GROUP BY day")
    means = lake.create_rollup("means", MEANS)
    drop_table(lake.catalog.handle("events"))
    lake.create_table("events", given).append([{"day": DAYS[0], list(given)[1]: 0.5 if "n" in given else 1}])
    says = (
        "the rollup's column total is BIGINT, but the source has changed, and the query gives DOUBLE: drop the rollup"
    )
    if "n" in given:
        assert means.refresh().mode == "rebuilt"  # its type is the same as before
    else:
        says = "events has no column n any more: drop the rollup, and create another"
    with pytest.raises(Invalid, match=f"the rollup totals cannot be refreshed: .*{says}"):
        totals.refresh()


WRITES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append([{"hits": 1}]),
    "append evolving": lambda table: table.append([{"more": 1}], evolve=True),
    "delete": lambda table: table.delete("true"),
    "update": lambda table: table.update({"hits": "0"}),
    "upsert": lambda table: table.upsert([{"day": DAYS[0], "hits": 1}], on=["day"]),
    "restore": lambda table: table.restore(version=0),
    "commit_files": lambda table: table.commit_files(list(table.files)),
    "evolve": lambda table: table.evolve(add={"more": "long"}),
}


@pytest.mark.parametrize("name", WRITES)
def test_nobody_else_writes_a_rollup(hits: Table, name: str) -> None:
    before = hits.version
    with pytest.raises(Invalid, match="a rollup"):
        WRITES[name](hits)
    assert hits.version == before


def test_a_rollup_is_merged_and_cleaned_up_like_any_table(events: Table, hits: Table) -> None:
    hits.optimize(full=True)
    hits.checkpoint()
    hits.vacuum()
    hits.evolve(properties={"alluvia.codec": "snappy"})
    events.append([event(0, n=5)])
    assert hits.refresh().mode == "folded"
    assert hits.verify(full=True).ok


def test_live_is_what_a_refresh_would_make(lake: Lake, events: Table, hits: Table) -> None:
    assert rows(lake.sql("FROM hits_live")) == START
    events.append([event(0, n=5), event(2)])
    grown = {(DAYS[0], "/", 3, 7), (DAYS[1], None, 1, None), (DAYS[2], "/", 1, 1)}
    assert rows(lake.sql("FROM hits_live")) == grown
    assert rows(lake.sql("SELECT * FROM hits")) == START
    events.delete("path IS NULL")
    assert rows(lake.sql("SELECT * FROM hits_live")) == grown - {(DAYS[1], None, 1, None)}
    text = "SELECT l.path, (SELECT max(hits) FROM hits) AS m FROM hits_live l JOIN events e USING (day) WHERE e.n = 5"
    assert rows(lake.sql(text)) == {("/", 2)}
    assert lake.sql("DESCRIBE hits_live")["column_type"].to_pylist() == ["date", "string", "long", "long"]
    plan = lake.sql("EXPLAIN SELECT * FROM hits_live")
    assert plan["table"].to_pylist()[0] == "hits"


def test_live_before_the_first_refresh(lake: Lake, events: Table) -> None:
    lake.create_rollup("later", HITS, fill=False)
    assert rows(lake.sql("FROM later")) == set()
    assert rows(lake.sql("FROM later_live")) == START


def test_how_fresh_a_rollup_is(lake: Lake, events: Table, hits: Table, clock: ManualClock) -> None:
    created = clock.now_ms()
    clock.advance(60)
    events.append([event(0)])
    found = hits.freshness()
    assert (found.source, found.version, found.source_version, found.newest_source_version) == ("events", 1, 1, 2)
    assert found.versions_behind == 1
    assert found.as_of == datetime.fromtimestamp(created / 1000, UTC)
    (shown,) = lake.sql("FROM hits_freshness").to_pylist()
    assert shown == {name: getattr(found, name) for name in shown}
    assert len(shown) == 6


def test_a_table_wins_over_what_a_rollup_gives_that_name(lake: Lake, hits: Table) -> None:
    lake.create_table("hits_live", {"x": "long"})
    assert lake.sql("FROM hits_live").column_names == ["x"]


@pytest.mark.parametrize("name", ["events_live", "events_freshness", "nothing_live", "_live", "hits_final"])
def test_other_names_stand_for_nothing(lake: Lake, hits: Table, name: str) -> None:
    with pytest.raises(TableNotFound, match=f"the lake has no table '{name}'"):
        lake.sql(f"FROM {name}")


def test_live_runs_as_confined_as_any_query(lake: Lake, hits: Table) -> None:
    """A definition is read again each time, whoever wrote it into the log."""
    handle = lake.catalog.handle("hits")
    key = f"{handle.root}_delta_log/{0:020}.json"
    text = lake.store.get(key).decode()
    assert "count(*)" in text
    lake.store.put(key, text.replace("count(*)", "max(getenv('HOME'))").encode())
    with pytest.raises(Invalid, match=re.escape("getenv() is not allowed")):
        Lake(lake.store, lake.clock).sql("FROM hits_live")


def refusal(lake: Lake, *args: Any, **options: Any) -> AlluviaError:
    with pytest.raises(AlluviaError) as found:
        lake.create_rollup(*args, **options)
    return found.value


def test_what_cannot_be_created_says_why(lake: Lake, events: Table, hits: Table) -> None:
    no = partial(refusal, lake)
    assert "table 'hits' already exists: choose another name, or drop it first" in str(no("hits", HITS))
    assert isinstance(no("other", "SELECT count(*) AS c FROM nothing"), TableNotFound)
    assert "must have aggregates" in str(no("other", "SELECT day FROM events"))
    assert "column 'count_star()' of the rollup" in str(no("other", "SELECT count(*) FROM events"))
    assert "Name it with AS, or cast it" in str(no("other", "SELECT n::UBIGINT AS u FROM events GROUP BY 1"))
    assert "two columns called 'PATH': give one another name with AS" in str(
        no("other", "SELECT path, count(*) AS PATH FROM events GROUP BY 1")
    )
    for value, kind in (("day::TIMESTAMP_NS", "TIMESTAMP"), ("path::ENUM('/', 'a')", "VARCHAR")):
        assert f"as they are. Cast it to a type that it has, as in CAST(… AS {kind})" in str(
            no("other", f"SELECT max({value}) AS m FROM events")
        )
    assert "column m has values of the type BIT, which an answer cannot contain" in str(
        no("other", "SELECT max(n::BIT) AS m FROM events")
    )
    assert "the table events as a value" in str(no("other", "SELECT max(events::VARCHAR) AS m FROM events"))
    assert "grouped by p, which is nested" in str(no("other", "SELECT {'a': path} AS p FROM events GROUP BY 1"))
    assert "one table of the lake in its FROM clause, without a version" in str(
        no("other", "SELECT count(*) AS c FROM events(version => 1)")
    )
    assert "names that end in _live are for queries of rollups" in str(no("my_live", HITS))
    for name, value in (("alluvia.writers", "any"), ("delta.appendOnly", "true")):
        assert f"property {name}: '{value}' is not possible for a rollup" in str(
            no("o", HITS, properties={name: value})
        )
    with pytest.raises(Invalid, match=r"property alluvia.rollup cannot be set: use create_rollup"):
        lake.create_table("o", {"x": "long"}, properties={"alluvia.rollup": "{}"})
    with pytest.raises(Invalid, match=r"property alluvia.rollup cannot be changed"):
        events.evolve(properties={"alluvia.rollup": "{}"})
    lake.create_table("taken_live", {"x": "long"})
    assert isinstance(no("taken", HITS), TableExists)
    assert lake.tables() == ["events", "hits", "taken_live"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT day, sum(path::INT) AS s FROM events GROUP BY day", "Could not convert string '/' to INT32"),
        ("SELECT sum(n + 9223372036854775806) AS s FROM events", "out of range"),
    ],
)
def test_a_rollup_that_cannot_be_filled_is_not_created(lake: Lake, events: Table, query: str, reason: str) -> None:
    failed = refusal(lake, "h", query)
    assert "the rollup h cannot be refreshed: " in str(failed)
    assert reason in str(failed)
    assert str(failed).endswith("The rollup was not created.")
    assert (lake.tables(), lake.rollups("events")) == (["events"], [])
    assert rows(lake.create_rollup("h", HITS)) == START


def test_rollups_of_rejects_keep_their_table(lake: Lake) -> None:
    lake.create_table("app", {"reason": "string"})
    create_rejects(lake, "app", {"reason": "string"})
    lake.create_rollup("reasons", "SELECT reason, count(*) AS n FROM app._rejects GROUP BY reason")
    with pytest.raises(Invalid, match="table app/_rejects is the source of reasons: drop it first"):
        lake.drop_table("app")
    lake.drop_table("reasons")
    lake.drop_table("app")


def test_a_rollup_cannot_get_properties_that_it_could_not_be_created_with(hits: Table) -> None:
    for name in ("delta.appendOnly", "delta.enableChangeDataFeed"):
        with pytest.raises(Invalid, match=f"property {name}: 'true' is not possible for a rollup"):
            hits.evolve(properties={name: "true"})


def test_rollups_come_after_the_rollups_that_they_are_of(lake: Lake, events: Table, hits: Table) -> None:
    lake.create_rollup("a", "SELECT day, sum(hits) AS hits FROM hits GROUP BY day")
    lake.create_rollup("b", "SELECT count(*) AS n FROM a")
    assert lake.rollups() == ["hits", "a", "b"]
    assert lake.rollups("events") == ["hits"]
    assert lake.rollups("events", nested=True) == ["hits", "a", "b"]


def test_live_of_a_rollup_that_fails_names_it(lake: Lake, events: Table) -> None:
    lake.create_rollup("numbers", "SELECT day, max(path::LONG) AS m FROM events WHERE n > 5 GROUP BY day")
    events.append([event(0, "x", 6)])
    with pytest.raises(Invalid, match=r"(?s)what the rollup numbers lacks cannot be computed: .*convert string 'x'"):
        lake.sql("FROM numbers_live")


def test_a_source_is_not_dropped_before_its_rollups(lake: Lake, events: Table, hits: Table) -> None:
    assert lake.rollups() == lake.rollups("events") == ["hits"]
    with pytest.raises(Invalid, match="table events is the source of hits: drop it first"):
        lake.drop_table("events")
    lake.drop_table("hits")
    assert lake.rollups() == []
    lake.drop_table("events")
    lake.undrop("events")
    lake.undrop("hits")
    assert lake.rollups("events") == ["hits"]
    hits.refresh()
    assert rows(hits) == START


def test_a_query_that_fails_on_a_row_names_the_rollup(lake: Lake, events: Table) -> None:
    numbers = lake.create_rollup("numbers", "SELECT day, max(path::LONG) AS m FROM events WHERE n > 5 GROUP BY day")
    events.append([event(0, "x", 6)])
    with pytest.raises(Invalid, match=r"(?s)the rollup numbers cannot be refreshed: .*Could not convert string 'x'"):
        numbers.refresh()
