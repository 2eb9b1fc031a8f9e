"""A field that becomes a column has one meaning: old and new events have it, by either name, wherever it is read."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import alluvia
from alluvia.access.rights import READ, Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.query.engine import run
from alluvia.query.permitted import permitted
from alluvia.store import MemoryStore
from tests.promoted import ARRIVAL_US, rows, send, stored

OLD = [{"event_id": f"old-{at}", "user_id": f"u{at % 3}", "page": "/", "n": at} for at in range(6)]
NEW = [{"event_id": f"new-{at}", "user_id": f"u{at % 4}", "page": "/", "n": at} for at in range(4)]
BOTH = "SELECT user_id, properties->>'user_id' AS text, count(*) AS n FROM clicks GROUP BY ALL ORDER BY ALL"
COUNTED = [("u0", "u0", 3), ("u1", "u1", 3), ("u2", "u2", 3), ("u3", "u3", 1)]


@pytest.fixture
def lake() -> Lake:
    """Events of before and after their field `user_id` became a column."""
    made = Lake(MemoryStore("promoted"), ManualClock(ARRIVAL_US, 7))
    made.create_events("clicks", properties={"delta.enableChangeDataFeed": "true"})
    send(made, OLD)
    made["clicks"].evolve(add={"user_id": "string"})
    send(made, NEW)
    return made


def test_either_name_finds_old_and_new_events(lake: Lake) -> None:
    assert rows(lake, BOTH) == COUNTED
    assert sorted(stored(lake), key=str) == ["1", None]
    assert rows(lake, "SELECT count(*) FROM clicks WHERE user_id = 'u0'") == [(3,)]
    assert rows(lake, "SELECT count(*) FROM clicks WHERE properties->>'user_id' = 'u0'") == [(3,)]
    scanned = lake["clicks"].scan(["user_id"], where="user_id = 'u0'").read_all()
    assert scanned.column(0).to_pylist() == ["u0"] * 3
    texts = lake["clicks"].scan(["properties"], where="user_id = 'u3'").read_all().column(0).to_pylist()
    assert texts == ['{"user_id":"u3","page":"/","n":3}']


def test_statistics_of_the_column_prune_files_that_have_it_and_no_others(lake: Lake) -> None:
    result = run(lake.catalog, "SELECT count(*) FROM clicks WHERE user_id = 'u9'")
    assert [(each.files_total, each.files_read) for each in result.tables] == [(2, 1)]
    assert result.read_all().column(0).to_pylist() == [0]
    lake["clicks"].optimize()
    result = run(lake.catalog, "SELECT count(*) FROM clicks WHERE user_id = 'u9'")
    assert [each.files_read for each in result.tables] == [0]


def test_rollups_and_published_queries_of_the_old_name_go_on() -> None:
    lake = Lake(MemoryStore("promoted-rollup"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    send(lake, OLD)
    text = "SELECT properties->>'user_id' AS who, count(*) AS n FROM clicks GROUP BY 1"
    lake.create_rollup("visits", text)
    lake.publish_query("users", "SELECT count(DISTINCT properties->>'user_id') AS users FROM clicks")
    lake["clicks"].evolve(add={"user_id": "string"})
    send(lake, NEW)
    lake["visits"].refresh()
    assert rows(lake, "SELECT who, n FROM visits ORDER BY ALL") == [(who, n) for who, _, n in COUNTED]
    assert rows(lake, "SELECT who, n FROM visits_live ORDER BY ALL") == [(who, n) for who, _, n in COUNTED]
    lake["visits"].refresh(rebuild=True)
    assert rows(lake, "SELECT who, n FROM visits ORDER BY ALL") == [(who, n) for who, _, n in COUNTED]


def test_a_merge_moves_the_field_of_old_events_to_its_column(lake: Lake) -> None:
    before = rows(lake, "SELECT event_id, user_id, properties->>'page' FROM clicks ORDER BY 1")
    lake["clicks"].optimize()
    assert stored(lake) == ["1"]
    assert rows(lake, BOTH) == COUNTED
    assert rows(lake, "SELECT event_id, user_id, properties->>'page' FROM clicks ORDER BY 1") == before
    assert lake["clicks"].verify(full=True).ok


def test_conditions_and_new_values_of_rows_go_by_either_name(lake: Lake) -> None:
    clicks = lake["clicks"]
    assert clicks.delete("user_id = 'u2'").rows_deleted == 3
    assert clicks.delete("properties->>'user_id' = 'u3'").rows_deleted == 1
    clicks.update({"user_id": "'you'"}, "user_id = 'u0'")
    clicks.update({"properties": '\'{"user_id":"me","k":1}\''}, "user_id = 'u1' AND event_id LIKE 'old%'")
    clicks.update({"properties": "'{\"k\":1}'"}, "user_id = 'u1'")
    assert rows(lake, BOTH) == [("me", "me", 2), ("you", "you", 3), (None, None, 1)]
    clicks.update({"user_id": "NULL"}, "user_id = 'you'")
    assert rows(lake, BOTH) == [("me", "me", 2), (None, None, 4)]
    clicks.update({"user_id": "'a'", "properties": '\'{"user_id":"b"}\''}, "user_id = 'me'")
    assert rows(lake, BOTH) == [("a", "a", 2), (None, None, 4)]
    changed = rows(
        lake, "SELECT user_id, properties->>'user_id' FROM changes('clicks', 0) WHERE _change_type = 'update_postimage'"
    )
    assert all(column == text for column, text in changed)
    assert ("you", "you") in changed


def test_rows_that_are_read_and_written_back_stay_the_same() -> None:
    lake = Lake(MemoryStore("promoted-back"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    send(lake, [{"event_id": f"e{at}", "v": value} for at, value in enumerate([1, 2.0, "many", None, [3]])])
    lake["clicks"].evolve(add={"v": "long"})
    before = rows(lake, "SELECT v, properties FROM clicks ORDER BY event_id")
    for _ in range(2):
        lake["clicks"].upsert(lake["clicks"].scan().read_all(), on=["event_id"])
        assert rows(lake, "SELECT v, properties FROM clicks ORDER BY event_id") == before


def test_rows_that_are_inserted_are_moved_as_events_are(lake: Lake) -> None:
    row = rows(lake, "SELECT event_id, ts, event, source, properties, received_at FROM clicks LIMIT 1")[0]
    names = ["event_id", "ts", "event", "source", "properties", "received_at"]
    values = dict(zip(names, row, strict=True)) | {"event_id": "mine", "properties": '{"user_id":"m","k":2}'}
    lake["clicks"].append([values])
    lake.sql(
        "INSERT INTO clicks (event_id, ts, properties, received_at) "
        "SELECT 'mine2', ts, properties, received_at FROM clicks WHERE event_id = 'mine'"
    )
    found = rows(lake, "SELECT user_id, properties FROM clicks WHERE event_id LIKE 'mine%'")
    assert found == [("m", '{"user_id":"m","k":2}')] * 2
    assert sorted(stored(lake), key=str) == ["1", "1", "1", None]


def test_versions_tags_restores_and_clones_keep_the_meaning(lake: Lake) -> None:
    clicks = lake["clicks"]
    assert rows(lake, "SELECT count(DISTINCT properties->>'user_id') FROM clicks VERSION AS OF 1") == [(3,)]
    lake.clone("clicks", "shallow")
    lake.clone("clicks", "deep", deep=True)
    for name in ("shallow", "deep"):
        assert rows(lake, BOTH.replace("FROM clicks", f"FROM {name}")) == COUNTED
    clicks.optimize()
    clicks.restore(version=1)
    assert rows(lake, "SELECT count(DISTINCT properties->>'user_id') FROM clicks") == [(3,)]
    clicks.evolve(add={"page": "string"})
    send(lake, [{"event_id": "later", "user_id": "u7", "page": "/x"}])
    clicks.evolve(add={"user_id": "string"})
    found = rows(lake, "SELECT user_id, page, count(*) FROM clicks GROUP BY ALL ORDER BY ALL")
    assert found == [("u0", "/", 2), ("u1", "/", 2), ("u2", "/", 2), ("u7", "/x", 1)]


def test_a_number_is_never_used_twice_also_after_a_replacement_and_a_restore(lake: Lake) -> None:
    clicks = lake["clicks"]
    clicks.evolve(add={"page": "string"})
    send(lake, [{"event_id": "x", "user_id": "u5", "page": "/p", "n": 8}])
    before = clicks.version
    lake.sql("CREATE OR REPLACE TABLE clicks AS SELECT * FROM clicks")
    clicks.restore(version=before)
    clicks.evolve(add={"n": "long"})
    assert rows(lake, "SELECT sum(n), sum((properties->>'n')::BIGINT), count(page) FROM clicks") == [(29, 29, 11)]
    clicks.optimize(backfill=True)
    assert set(stored(lake)) == {"3"}
    assert rows(lake, "SELECT sum(n), sum((properties->>'n')::BIGINT), count(page) FROM clicks") == [(29, 29, 11)]


def test_a_renamed_column_stays_the_same_field(lake: Lake) -> None:
    lake["clicks"].evolve(rename={"user_id": "who"})
    send(lake, [{"event_id": "x", "user_id": "u3"}])
    found = rows(lake, BOTH.replace("SELECT user_id", "SELECT who"))
    assert found == [*COUNTED[:3], ("u3", "u3", 2)]
    lake["clicks"].optimize()
    assert rows(lake, BOTH.replace("SELECT user_id", "SELECT who")) == found


def test_a_dropped_column_takes_the_moved_values_along(lake: Lake) -> None:
    lake["clicks"].evolve(drop=["user_id"])
    assert rows(lake, "SELECT count(properties->>'user_id') FROM clicks") == [(len(OLD),)]
    lake["clicks"].evolve(add={"user_id": "string"})
    assert rows(lake, "SELECT count(user_id), count(properties->>'user_id') FROM clicks") == [(len(OLD), len(OLD))]


def test_an_event_with_two_values_keeps_both(lake: Lake) -> None:
    send(lake, [{"event_id": "two", "user_id": "own", "properties": {"user_id": "inner", "k": 1}}])
    found = rows(
        lake,
        "SELECT user_id, properties->>'user_id', properties->>'$._properties.user_id' "
        "FROM clicks WHERE event_id = 'two'",
    )
    assert found == [("own", "own", "inner")]


def test_branches_and_streams_see_old_and_new(lake: Lake) -> None:
    branch = lake.branch("fix")
    assert rows(branch, BOTH) == COUNTED
    branch["clicks"].update({"user_id": "'z'"}, "user_id = 'u0'")
    branch.publish()
    assert rows(lake, "SELECT count(*) FROM clicks WHERE properties->>'user_id' = 'z'") == [(3,)]


def test_checks_see_the_value_in_either_place(lake: Lake) -> None:
    lake["clicks"].evolve(add={"kind": "string"})
    with pytest.raises(alluvia.Invalid, match="user_id"):
        lake.sql("ALTER TABLE clicks ADD CONSTRAINT some CHECK (user_id <> 'u2')")
    lake.sql("ALTER TABLE clicks ADD CONSTRAINT few CHECK (user_id <> 'u8')")
    with pytest.raises(alluvia.Invalid, match="few"):
        lake.sql(
            "INSERT INTO clicks (event_id, ts, received_at, properties) "
            "SELECT 'bad', ts, received_at, '{\"user_id\":\"u8\"}' FROM clicks LIMIT 1"
        )


def test_a_hidden_column_hides_the_field_in_properties_too(lake: Lake) -> None:
    send(lake, [{"event_id": "two", "user_id": "own", "properties": {"user_id": "inner", "k": 1.5}}])
    seen = permitted(lake.catalog, Rights((Grant(frozenset({READ}), ("*",), None, frozenset({"user_id"})),)))
    texts = [
        row["properties"] for row in run(seen, "SELECT properties FROM clicks ORDER BY event_id").read_all().to_pylist()
    ]
    assert [orjson.loads(text) for text in texts] == [
        *({"n": at, "page": "/"} for at in range(4)),
        *({"n": at, "page": "/"} for at in range(6)),
        {"k": 1.5},
    ]
    found = run(seen, "SELECT count(properties->>'user_id') FROM clicks VERSION AS OF 1").read_all()
    assert found.column(0).to_pylist() == [0]
    lake["clicks"].optimize()
    found = run(seen, "SELECT count(properties->>'user_id'), count(*) FROM clicks").read_all()
    assert found.to_pylist() == [{found.schema.names[0]: 0, found.schema.names[1]: 11}]


@pytest.mark.parametrize("name", ["a b", "a.b", 'a"b', "a\\b", "a\tb", "a\nb", "a*b", "it's", "ü", "$"])
def test_a_field_of_any_name_is_read_and_hidden(name: str) -> None:
    lake = Lake(MemoryStore(f"promoted-{name.encode().hex()}"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    send(lake, [{"event_id": "old", name: "x", f"{name}{name}": 1}])
    lake["clicks"].evolve(add={name: "string"})
    send(lake, [{"event_id": "new", name: "y", f"{name}{name}": 2}])
    column = name.replace('"', '""')
    found = rows(lake, f'SELECT "{column}", properties FROM clicks ORDER BY 1')
    assert [(value, orjson.loads(text)) for value, text in found] == [
        ("x", {name: "x", f"{name}{name}": 1}),
        ("y", {name: "y", f"{name}{name}": 2}),
    ]
    seen = permitted(lake.catalog, Rights((Grant(frozenset({READ}), ("*",), None, frozenset({name})),)))
    texts = run(seen, "SELECT properties FROM clicks ORDER BY event_id DESC").read_all().column(0).to_pylist()
    assert [orjson.loads(text) for text in texts] == [{f"{name}{name}": 1}, {f"{name}{name}": 2}]


def test_a_row_filter_on_the_column_holds_for_old_events(lake: Lake) -> None:
    seen = permitted(lake.catalog, Rights((Grant(frozenset({READ}), ("*",), "user_id = 'u0'", frozenset()),)))
    found = run(seen, "SELECT event_id, properties->>'user_id' AS text FROM clicks ORDER BY 1").read_all().to_pylist()
    assert [(row["event_id"], row["text"]) for row in found] == [("new-0", "u0"), ("old-0", "u0"), ("old-3", "u0")]


def test_an_erasure_finds_old_and_new_events_by_either_name() -> None:
    for where in ("user_id = 'u0'", "properties->>'user_id' = 'u0'"):
        lake = Lake(MemoryStore(f"promoted-{where}"), ManualClock(ARRIVAL_US, 7))
        lake.create_events("clicks")
        send(lake, OLD)
        lake["clicks"].evolve(add={"user_id": "string"})
        send(lake, NEW)
        lake["clicks"].erase(where)
        assert rows(lake, BOTH) == [each for each in COUNTED if each[0] != "u0"]


def test_the_feed_of_changes_has_no_rows_that_only_moved(lake: Lake) -> None:
    lake = Lake(MemoryStore("promoted-feed"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    send(lake, [{"event_id": f"old-{at}", "page": "/", "user_id": f"u{at}"} for at in range(4)])
    lake["clicks"].evolve(add={"user_id": "string"})
    version = lake["clicks"].delete("user_id = 'u2'").version
    changed = [(row["_change_type"], row["user_id"]) for row in lake["clicks"].changes(version).read_all().to_pylist()]
    assert changed == [("delete", "u2")]


def test_rows_of_another_writer_count_wherever_they_have_the_value(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    table = lake.create_table("t", {"n": "long", "properties": "string"}, properties={"alluvia.writers": "any"})
    table.append([{"n": 0, "properties": '{"k":"a"}'}])
    table.evolve(add={"k": "string"})
    theirs = pa.table(
        {
            "n": pa.array([1, 2, 3], pa.int64()),
            "properties": ['{"k":"a"}', '{"k":"b","o":1}', None],
            "k": pa.array([None, "c", "a"], pa.string()),
        }
    )
    write_deltalake(str(tmp_path / "t"), theirs, mode="append")
    query = "SELECT n, k, properties->>'k', properties->>'$._properties.k' FROM t ORDER BY n"
    wanted = [(0, "a", "a", None), (1, "a", "a", None), (2, "c", "c", "b"), (3, "a", "a", None)]
    assert rows(lake, query) == wanted
    assert rows(lake, "SELECT n FROM t WHERE k = 'a' ORDER BY n") == [(0,), (1,), (3,)]
    assert sorted(table.scan(["n"], where="k = 'a'").read_all().column(0).to_pylist()) == [0, 1, 3]
    write_deltalake(str(tmp_path / "t"), theirs.slice(0, 1), mode="append")
    assert rows(lake, "SELECT count(*) FROM t WHERE k = 'a'") == [(4,)]
    table.checkpoint()
    again = alluvia.connect(tmp_path)
    assert rows(again, "SELECT count(*) FROM t WHERE k = 'a'") == [(4,)]
    again["t"].optimize(backfill=True)
    again["t"].checkpoint()
    assert set(stored(alluvia.connect(tmp_path), "t")) == {"1"}
    assert rows(alluvia.connect(tmp_path), query)[:3] == wanted[:1] + [wanted[1]] * 2


def test_a_backfill_moves_all_old_rows_and_can_go_on(lake: Lake) -> None:
    send(lake, [{"event_id": "more", "user_id": "u3"}])
    before = rows(lake, BOTH)
    fresh = Lake(MemoryStore("promoted-backfill"), ManualClock(ARRIVAL_US, 7))
    table = fresh.create_events("clicks", partition_by=["event"])
    for at in range(4):
        send(fresh, [{"event_id": f"{at}", "event": f"e{at % 2}", "user_id": f"u{at}"}])
    table.evolve(add={"user_id": "string"})
    assert table.optimize(backfill=True, max_files=2).files_removed == 2
    assert sorted(stored(fresh), key=str)[0] == "1"
    table.optimize(backfill=True)
    assert set(stored(fresh)) == {"1"}
    assert table.optimize(backfill=True).files_removed == 0
    assert rows(fresh, "SELECT count(*) FROM clicks WHERE user_id = 'u3'") == [(1,)]
    lake.sql("OPTIMIZE clicks BACKFILL")
    assert set(stored(lake)) == {"1"}
    assert rows(lake, BOTH) == before


def test_adding_a_field_names_what_reads_it() -> None:
    lake = Lake(MemoryStore("promoted-names"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    lake.create_events("others")
    send(lake, OLD)
    lake.sql("CREATE VIEW people AS SELECT properties->>'user_id' AS who FROM clicks")
    lake.sql("CREATE VIEW pages AS SELECT properties->>'page' AS page FROM clicks")
    lake.sql("CREATE VIEW strangers AS SELECT properties->>'user_id' AS who FROM others")
    lake.create_rollup("visits", "SELECT properties->>'user_id' AS who, count(*) AS n FROM clicks GROUP BY 1")
    lake.publish_query("users", "SELECT count(DISTINCT properties->>'user_id') AS users FROM clicks")
    evolved = lake["clicks"].evolve(add={"user_id": "string"})
    assert evolved.promoted == ("user_id",)
    assert evolved.named_in == ("view people", "rollup visits", "published query users")
    [answer] = lake.sql("ALTER TABLE clicks ADD COLUMN page VARCHAR").to_pylist()
    assert answer["named_in"] == "view pages"


def test_a_table_without_properties_has_plain_columns() -> None:
    lake = Lake(MemoryStore("promoted-none"), ManualClock(ARRIVAL_US, 7))
    table = lake.create_table("t", {"n": "long"})
    table.append(pa.table({"n": [1]}))
    table.evolve(add={"k": "string"})
    assert "promotion" not in table.snapshot().state.metadata.schema_string
    table.append(pa.table({"n": [2], "k": ["x"]}))
    assert stored(lake, "t") == [None, None]
