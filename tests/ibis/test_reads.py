"""Expressions of ibis, as its tutorial and its guides write them, on events: answers are those of plain Python."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Any

import ibis
import pyarrow as pa
import pytest
from ibis import _, selectors

import alluvia
from tests.ibis.sample import ROWS, START, USERS, rows_of

BY_EVENT = {name: [row for row in ROWS if row["event"] == name] for name in ("buy", "click", "view")}


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]  # ibis has no types
def levenshtein(first: str, second: str) -> int:  # type: ignore[empty-body]
    """Compare two texts; DuckDB has it."""


def ids(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"id": row["id"]} for row in rows]


SHAPES: dict[str, tuple[Callable[[Any], Any], list[dict[str, Any]]]] = {
    "filter and select": (
        lambda t: t.filter(t.event == "buy", t.user > 1).select("id").order_by("id"),
        ids(*(row for row in ROWS if row["event"] == "buy" and row["user"] > 1)),
    ),
    "drop and rename": (
        lambda t: t[["id", "user", "ok"]].drop("ok").rename(who="user").order_by("id").limit(2, offset=1),
        [{"id": row["id"], "who": row["user"]} for row in ROWS[1:3]],
    ),
    "mutate": (
        lambda t: t.mutate(twice=t.id * 2, os=t.device.os.upper()).select("twice", "os").order_by("twice").head(2),
        [{"twice": 0, "os": "MAC"}, {"twice": 2, "os": "LINUX"}],
    ),
    "order_by": (lambda t: t.order_by([ibis.desc("user"), "id"]).select("id").head(2), ids(ROWS[3], ROWS[7])),
    "aggregate": (
        lambda t: t.aggregate(n=t.count(), most=t.score.max(), mean=t.id.mean(), users=t.user.nunique()),
        [{"n": 20, "most": 19 / 7, "mean": 9.5, "users": 4}],
    ),
    "group_by": (
        lambda t: t.group_by("event").agg(n=_.count(), last=_.at.max()).order_by("event"),
        [{"event": each, "n": len(rows), "last": max(r["at"] for r in rows)} for each, rows in BY_EVENT.items()],
    ),
    "group_by and having": (
        lambda t: t.group_by("event").having(_.count() < 7).agg(spread=_.id.std(how="pop").round(9)),
        [{"event": "buy", "spread": round(statistics.pstdev(row["id"] for row in BY_EVENT["buy"]), 9)}],
    ),
    "value_counts": (
        lambda t: t.user.value_counts().order_by("user"),
        [{"user": user, "user_count": n} for user, n in sorted(Counter(row["user"] for row in ROWS).items())],
    ),
    "topk": (lambda t: t.filter(t.id < 4).event.topk(1), [{"event": "view", "event_count": 2}]),
    "case": (
        lambda t: t.select("id", size=ibis.cases((t.id < 2, "low"), (t.id > 17, "high"), else_=None))
        .filter(_.size.notnull())
        .order_by("id"),
        [{"id": n, "size": "low" if n < 2 else "high"} for n in (0, 1, 18, 19)],
    ),
    "row_number": (
        lambda t: t.mutate(place=ibis.row_number().over(group_by="event", order_by=ibis.desc("id")))
        .filter(_.place == 0)
        .select("id")
        .order_by("id"),
        ids(*ROWS[17:]),
    ),
    "running sum": (
        lambda t: t.filter(t.user == 0).select("id", total=_.id.sum().over(order_by="id", rows=(None, 0))),
        [{"id": 4 * n, "total": 2 * n * (n + 1)} for n in range(5)],
    ),
    "lag": (
        lambda t: t.select("id", gap=(t.id - t.id.lag()).over(group_by="user", order_by="id")).order_by("id").limit(6),
        [{"id": n, "gap": None if n < 4 else 4} for n in range(6)],
    ),
    "distinct": (lambda t: t.select("event").distinct().order_by("event"), [{"event": each} for each in BY_EVENT]),
    "first of each": (
        lambda t: t.order_by("id").distinct(on="event", keep="first").select("id").order_by("id"),
        ids(*ROWS[:3]),
    ),
    "union": (lambda t: ibis.union(t, t).aggregate(n=_.count()), [{"n": 40}]),
    "difference": (
        lambda t: t.select("id").difference(t.filter(t.id > 1).select("id")).order_by("id"),
        ids(*ROWS[:2]),
    ),
    "subquery": (lambda t: t.filter(t.score == t.score.max()).select("id"), ids(ROWS[19])),
    "semi join with itself": (
        lambda t: t.semi_join(t.view().filter(_.ok & (_.id > 16)), "id").select("id").order_by("id"),
        ids(*(row for row in ROWS[17:] if row["ok"])),
    ),
    "unnest": (
        lambda t: t.tags.unnest().name("tag").as_table().tag.value_counts().order_by("tag"),
        [
            {"tag": tag, "tag_count": n}
            for tag, n in sorted(Counter(tag for row in ROWS for tag in row["tags"]).items())
        ],
    ),
    "struct and map": (
        lambda t: t.aggregate(version=t.device.version.max(), seen=t.counts["seen"].sum()),
        [{"version": 19, "seen": 190}],
    ),
    "arrays": (
        lambda t: t.filter(t.id == 2).select(n=t.tags.length(), last=t.tags[-1], has=t.tags.contains("o'k")),
        [{"n": 2, "last": "o'k", "has": True}],
    ),
    "collect": (
        lambda t: t.group_by("user").agg(all=_.id.collect(order_by=_.id)).order_by("user").limit(1),
        [{"user": 0, "all": [0, 4, 8, 12, 16]}],
    ),
    "texts": (
        lambda t: t.filter(t.event.like("b%")).aggregate(x=_.event.upper().max(), y=_.event.replace("uy", "-").min()),
        [{"x": "BUY", "y": "b-"}],
    ),
    "truncated times": (
        lambda t: t.group_by(day=t.at.truncate("D")).agg(n=_.count()).order_by("day").limit(1),
        [
            {"day": datetime(day.year, day.month, day.day), "n": len([*rows])}
            for day, rows in groupby(sorted(row["at"].date() for row in ROWS))
        ][:1],
    ),
    "parts of times": (
        lambda t: t.filter(t.id == 0).select(
            y=t.at.year(), h=t.at.hour(), ms=t.at.millisecond(), w=t.at.day_of_week.full_name(), d=t.at.date()
        ),
        [{"y": 2026, "h": 9, "ms": 250, "w": "Sunday", "d": START.date()}],
    ),
    "times of day": (
        lambda t: t.filter(t.at.time() == ibis.time("09:30:15.25")).select("id", clock=_.at.time()),
        [{"id": 0, "clock": time(9, 30, 15, 250_000)}],
    ),
    "intervals": (
        lambda t: t.aggregate(next=(t.at + ibis.interval(days=1)).min(), span=t.local.max() - t.local.min()),
        [{"next": START + timedelta(days=1), "span": timedelta(hours=19)}],
    ),
    "between times": (
        lambda t: t.filter(t.at.between("2026-11-02", "2026-11-03")).select("id").order_by("id"),
        ids(*(row for row in ROWS if row["at"].date() == date(2026, 11, 2))),
    ),
    "time zones": (
        lambda t: t.filter(t.at == ibis.timestamp("2026-11-01 10:30:15.250000+01:00")).select("id"),
        ids(ROWS[0]),
    ),
    "decimals": (
        lambda t: t.aggregate(total=t.amount.sum(), filled=t.amount.fill_null(0).min()),
        [{"total": sum(row["amount"] for row in BY_EVENT["buy"]), "filled": 0}],
    ),
    "pivot_longer": (
        lambda t: t.filter(t.id == 3).select("id", "user").pivot_longer(["id", "user"]).order_by("name"),
        [{"name": "id", "value": 3}, {"name": "user", "value": 3}],
    ),
    "selectors": (
        lambda t: t.group_by("ok").agg(selectors.across(["id", "user"], _.max())).order_by("ok"),
        [{"ok": False, "id": 15, "user": 3}, {"ok": True, "id": 19, "user": 3}],
    ),
    "quantiles": (lambda t: t.aggregate(x=t.id.quantile(0.5), y=t.id.median()), [{"x": 9.5, "y": 9.5}]),
    "approximate": (lambda t: t.aggregate(few=t.event.approx_nunique()), [{"few": 3}]),
    "describe": (lambda t: t[["id"]].describe().select("name", "count"), [{"name": "id", "count": 20}]),
    "json": (
        lambda t: t.filter(t.id == 0).select(n=ibis.literal('{"a": [1, 2]}').cast("json")["a"][1].int),
        [{"n": 2}],
    ),
    "a function of DuckDB": (lambda t: t.aggregate(most=levenshtein(t.event, "buyer").max()), [{"most": 5}]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_an_expression(con: Any, name: str) -> None:
    shape, expected = SHAPES[name]
    assert rows_of(shape(con.table("events"))) == expected


def test_tables_and_views_are_listed(con: Any) -> None:
    assert {"buys", "events", "users"} <= set(con.list_tables())
    assert con.list_tables(like="^us") == ["users"]
    assert "events" in con.tables
    assert con.tables.users.columns == ("user", "name")
    assert con.version == alluvia.__version__


def test_a_schema_has_the_types_of_the_columns(con: Any) -> None:
    schema = con.table("events").schema()
    assert schema == con.sql("SELECT * FROM events").schema()
    assert {name: str(kind) for name, kind in schema.items()} == {
        "id": "int64",
        "at": "timestamp('UTC', 6)",
        "event": "string",
        "user": "int32",
        "amount": "decimal(10, 2)",
        "score": "float64",
        "tags": "array<string>",
        "device": "struct<os: string, version: int64>",
        "counts": "map<!string, int64>",
        "day": "date",
        "local": "timestamp(6)",
        "raw": "binary",
        "ok": "boolean",
    }


def test_every_type_comes_as_it_is(con: Any) -> None:
    assert rows_of(con.table("events").order_by("id")) == ROWS


def test_views_are_read_like_tables(con: Any) -> None:
    assert rows_of(con.table("buys").select("id").order_by("id")) == ids(*BY_EVENT["buy"])


def test_sql_is_a_table_to_go_on_with(con: Any) -> None:
    assert rows_of(con.sql("SELECT id, user FROM events WHERE id < 3 -- so").filter(_.user > 0).order_by("id")) == [
        {"id": 1, "user": 1},
        {"id": 2, "user": 2},
    ]
    named = con.table("events").filter(_.id > 17).alias("late")
    assert rows_of(named.sql("SELECT max(late.id) AS last, count(*) AS n FROM late")) == [{"last": 19, "n": 2}]


@pytest.mark.parametrize(
    ("at", "rows"), [("(version => 0)", 0), ("(version => 1)", 10), (" AT (VERSION => 1)", 10), ("('2100-01-01')", 20)]
)
def test_older_versions_are_read_by_sql(con: Any, at: str, rows: int) -> None:
    before = con.sql(f"SELECT * FROM events{at}")
    assert before.count().to_pyarrow().as_py() == rows
    assert con.table("events").anti_join(before, "id").count().to_pyarrow().as_py() == 20 - rows


def test_tables_are_joined_with_each_other_and_with_memory(con: Any) -> None:
    events = con.table("events")
    expected = [{"name": row["name"], "n": 5} for row in USERS]
    joined = events.join(con.table("users"), "user").group_by("name").agg(n=_.count()).order_by("name")
    assert rows_of(joined) == expected
    names = ibis.memtable(pa.Table.from_pylist(USERS))
    assert rows_of(events.join(names, "user").group_by("name").agg(n=_.count()).order_by("name")) == expected
    left = events.left_join(names, "user").filter(_.name.isnull()).aggregate(n=_.count())
    assert rows_of(left) == [{"n": 5}]


def test_values_of_memory_keep_their_types(con: Any) -> None:
    columns = con.table("events").schema().to_pyarrow()
    odd: dict[str, list[Any]] = {
        "score": [float("nan"), float("-inf"), 0.1 + 0.2, 1e300],
        "event": ["'; DROP TABLE users --", "\n", "", None],
    }
    rows = pa.Table.from_pylist(ROWS, columns)
    assert con.to_pyarrow(ibis.memtable(rows).order_by("id")).equals(rows)
    found = con.to_pyarrow(ibis.memtable(pa.table(odd))).to_pydict()
    assert list(map(repr, found["score"])) == list(map(repr, odd["score"]))
    assert found["event"] == odd["event"]
    assert con.to_pyarrow(ibis.memtable(rows.slice(0, 0))).equals(rows.slice(0, 0))


def test_parameters_have_their_values_when_it_runs(con: Any) -> None:
    events = con.table("events")
    user, least = ibis.param("int64"), ibis.param("timestamp('UTC')")
    found = events.filter(events.user == user, events.at >= least).select("id").order_by("id")
    given = {user: 2, least: datetime(2026, 11, 4, tzinfo=UTC)}
    assert found.to_pyarrow(params=given).to_pylist() == ids(
        *(row for row in ROWS if row["user"] == 2 and row["at"].date() >= date(2026, 11, 4))
    )


def test_columns_and_values_come_alone(con: Any) -> None:
    events = con.table("events")
    assert events.id.max().to_pyarrow().as_py() == 19
    assert sorted(events.user.to_pyarrow().to_pylist()) == sorted(row["user"] for row in ROWS)
    assert con.to_pyarrow(ibis.literal(1) + 1).as_py() == 2


def test_rows_come_in_batches(con: Any) -> None:
    reader = con.table("events").order_by("id").select("id").to_pyarrow_batches(chunk_size=8)
    batches = list(reader)
    assert [batch.num_rows for batch in batches] == [8, 8, 4]
    assert pa.Table.from_batches(batches).to_pylist() == ids(*ROWS)
    with con.table("events").to_pyarrow_batches(limit=3) as reader:
        assert reader.read_next_batch().num_rows <= 3  # and the rest is not wanted


def test_conditions_leave_out_files(lake: alluvia.Lake) -> None:
    events = ibis.alluvia.connect(lake).table("events")
    late = ibis.to_sql(events.filter(events.at >= datetime(2026, 11, 5, tzinfo=UTC), events.id > 3))
    (table, _whole) = lake.sql(f"EXPLAIN {late}").to_pylist()[:2]
    assert (table["files_total"], table["files_read"]) == (11, 3)  # of the fifth, one of each append; the sixth


def test_expressions_of_two_connections_to_one_lake_are_one_query(lake: alluvia.Lake) -> None:
    first, second = ibis.alluvia.connect(lake), ibis.alluvia.from_connection(lake)
    joined = first.table("events").join(second.table("users"), "user")
    assert joined.count().to_pyarrow().as_py() == 15
