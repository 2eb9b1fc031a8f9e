"""An erasure finds its value elsewhere in the lake: in queries, views, names and texts of commits."""

from __future__ import annotations

import gzip

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from alluvia.access.claims import TokenClaims
from alluvia.access.issuing import issue
from alluvia.access.registry import ISSUED, add_key, is_revoked, issued, revoke
from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.operations.erasure.erase_report import ENDED_TEXTS
from alluvia.operations.results.jobs import JOBS
from alluvia.operations.results.results import RESULTS, KeptResult, keep_result
from alluvia.operations.results.upload_parts import UPLOADS
from alluvia.pipelines.marks import note_failure, read_failure
from tests.erased import traces
from tests.unit.operations.erasure.people import VICTIM, WHERE, post


def test_what_the_lake_keeps_of_queries_is_searched(lake: Lake) -> None:
    post(lake, {"event_id": "a", "user_id": "bob"})
    keep_result(lake.store, "k", KeptResult(orjson.dumps([{"u": VICTIM}]), {}))
    large = f"{RESULTS}large/x.csv.gz"
    lake.store.put(large, gzip.compress(VICTIM.encode()))
    lake.store.put(f"{JOBS}x/asked.json", orjson.dumps({"query": WHERE}))
    lake.store.put(f"{UPLOADS}events/u/1", gzip.compress(VICTIM.encode()))
    lake.store.put(f"{UPLOADS}events/u/2", b"\x00\xfe not text")
    events = lake.table("events")
    found = events.erase(WHERE, dry_run=True)
    assert found.proof is not None
    keys = {trace.key for trace in found.proof.found}
    assert keys == {
        f"{RESULTS}k",
        large,
        f"{JOBS}x/asked.json",
        f"{UPLOADS}events/u/1",
        f"{UPLOADS}events/u/2",
    }
    assert events.erase(WHERE, prove=True).ok
    assert not list(lake.store.list(RESULTS))


def test_texts_of_commits_go_whatever_they_are_called(lake: Lake) -> None:
    table = lake.create_table("t", {"user_id": "string"}, properties={"alluvia.writers": "any"})
    handle = table._handle
    said = Changes("WRITE", {"mode": "Append"}, info={"userMetadata": f"import of {VICTIM}", "job": {"for": VICTIM}})
    handle.transaction(handle.newest()).commit(said)
    assert traces(lake.store, VICTIM)
    assert table.erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM) == []


def test_a_constraint_that_names_a_value_is_named(lake: Lake) -> None:
    rule = {"delta.constraints.known": f"user_id <> '{VICTIM}'"}
    lake.create_table("t", {"user_id": "string"}, properties=rule).append([{"user_id": "bob"}])
    report = lake.table("t").erase(WHERE, prove=True)
    assert report.proof is not None
    assert [trace.why for trace in report.proof.found] == [
        "the table's property delta.constraints.known contains a value of the condition: change it, then erase again"
    ]


def test_rows_of_a_table_that_only_a_branch_has_are_found(lake: Lake) -> None:
    lake.create_table("t", {"user_id": "string"}).append([{"user_id": "bob"}])
    lake.branch("b").create_table("own", {"user_id": "string"}).append([{"user_id": VICTIM}])
    report = lake.table("t").erase(WHERE, prove=True)
    assert report.proof is not None
    assert any("/own/" in trace.key for trace in report.proof.found)


def test_a_view_that_names_a_value_is_left_and_named(disk: Lake) -> None:
    disk.create_table("t", {"user_id": "string"}).append([{"user_id": VICTIM}])
    disk.sql(f"CREATE VIEW v AS SELECT * FROM t WHERE {WHERE}")
    report = disk.table("t").erase(WHERE, prove=True)
    assert report.proof is not None
    assert [trace.key.rpartition("/")[0] for trace in report.proof.found] == ["_alluvia/views/v"]


def test_what_has_no_known_form_is_named(lake: Lake) -> None:
    table = lake.create_table("t", {"user_id": "string"})
    table.append([{"user_id": VICTIM}])
    lake.store.put("t/notes.bin", b"\x00\xff\xfe")
    lake.store.put("t/notes.txt.gz", gzip.compress(VICTIM.encode()))
    lake.store.put("_alluvia/notes.bin", b"\x00\xff\xfe")
    report = table.erase(WHERE, prove=True)
    assert report.proof is not None
    assert {trace.key for trace in report.proof.found} == {
        "t/notes.bin",
        "t/notes.txt.gz",
        "_alluvia/notes.bin",
    }


def test_a_value_with_an_apostrophe_is_found_in_sql_that_the_lake_keeps(lake: Lake) -> None:
    post(lake, {"event_id": "a", "user_id": "O'Neil77"})
    lake.sql("CREATE VIEW people AS SELECT * FROM events WHERE properties ->> 'user_id' = 'O''Neil77'")
    report = lake.table("events").erase("user_id = 'O''Neil77'", prove=True)
    assert (report.rows, report.ok) == (1, False)


def test_json_in_a_text_that_begins_with_space_is_looked_into(lake: Lake) -> None:
    post(lake, {"event_id": "a", "context": f' {{"user_id": "{VICTIM}"}}'})
    report = lake.table("events").erase(WHERE, prove=True)
    assert not report.ok


def test_values_in_properties_and_application_ids_are_named(lake: Lake) -> None:
    table = lake.create_table("t", {"user_id": "string"})
    table.append([{"user_id": "alice77"}, {"user_id": "bob"}], txn=("alice77", 1))
    table.evolve(properties={"owner": "alice77"})
    report = table.erase("user_id = 'alice77'", prove=True)
    assert (report.rows, report.ok) == (1, False)
    assert report.proof is not None
    assert sorted(trace.why for trace in report.proof.found) == [
        "an application id (txn) contains a value of the condition",
        "the table's property owner contains a value of the condition: change it, then erase again",
    ]


def test_comments_and_properties_with_a_value_are_named_and_go_once_they_are_replaced(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (p STRING COMMENT 'as zzperson said', n BIGINT)")
    table = lake.table("t")
    table.append([{"p": "bob", "n": 1}])
    table.checkpoint()
    table.evolve(properties={"owner": "zzperson"})
    table.set_comment("asked for by zzperson")
    report = table.erase("p = 'zzperson'", prove=True)
    assert report.proof is not None
    assert [trace.why for trace in report.proof.found] == [
        f"the {place} contains a value of the condition: change it, then erase again"
        for place in ("table's comment", "table's property owner", "comment of column p")
    ]
    lake.sql("COMMENT ON TABLE t IS NULL; COMMENT ON COLUMN t.p IS 'a person'")
    table.evolve(properties={"owner": "the shop"})
    assert traces(lake.store, "zzperson")
    assert not table.erase("p = 'zzperson'", dry_run=True).ok
    assert table.erase("p = 'zzperson'", prove=True).ok
    assert traces(lake.store, "zzperson") == []
    again = lake["t"]
    assert (again.to_arrow().to_pylist(), again.column_comments) == ([{"p": "bob", "n": 1}], {"p": "a person"})


def test_names_of_tables_and_columns_with_a_value_are_named(lake: Lake) -> None:
    lake.create_table("t", {"user_id": "string", "alice.x": "long", "o": "struct<alice: long>"})
    lake.create_table("alice", {"user_id": "string", "alices": "long", "properties": "string"})
    where = "user_id = 'alice'"
    assert _whys(lake, "t", where) == [
        "the name of column 'alice.x' contains a value of the condition: rename it or drop it",
        "the name of column 'o.alice' contains a value of the condition: rename it or drop it",
    ]
    assert _whys(lake, "alice", where) == [
        "the name of the table contains a value of the condition: rename it or drop it"
    ]
    lake.table("t").evolve(rename={"alice.x": "x"}, drop=["o"])
    assert [why for why in _whys(lake, "t", where) if "name" in why] == [
        "the former name 'alice.x' of a column contains a value of the condition: copy the rows to a new table"
    ]
    assert _whys(lake, "alice", "properties ->> 'alice' = 'bob' OR user_id = 'bob'") == []


def test_names_of_streams_and_branches_with_a_value_are_named_once(lake: Lake) -> None:
    table = lake.create_table("t", {"user_id": "string"})
    table.append([{"user_id": "bob"}])
    lake.branch("alice").table("t").append([{"user_id": "bob"}])
    lake.store.put("_alluvia/streams/alice/_delta_log/00000000000000000000.json", b"{}")
    found = table.erase("user_id = 'alice'", dry_run=True).proof
    assert found is not None
    named = [(trace.key, trace.removable) for trace in found.found if trace.why.startswith("its name contains")]
    assert sorted(named) == [
        ("_alluvia/kept/_lake/branch/alice.json", False),
        ("_alluvia/streams/alice/", False),
    ]


def _whys(lake: Lake, table: str, where: str) -> list[str]:
    proof = lake.table(table).erase(where, dry_run=True).proof
    assert proof is not None
    return [trace.why for trace in proof.found]


def _left(lake: Lake, where: str = WHERE) -> dict[str, str]:
    report = lake.table("events").erase(where, prove=True)
    assert report.proof is not None
    return {trace.key: trace.why for trace in report.proof.found}


def _link(lake: Lake, seconds: int = 3600) -> TokenClaims:
    key = Ed25519PrivateKey.generate()
    add_key(lake.store, lake.clock, key.public_key().public_bytes_raw())
    fixed = Grant(frozenset({"link"}), (), queries=("q",), values=(("user", VICTIM),))
    return issue(lake.store, lake.clock, key, Rights((fixed,), "q"), "q", seconds)[1]


def test_a_link_with_a_value_is_named_until_it_is_revoked_and_then_deleted(lake: Lake, clock: ManualClock) -> None:
    post(lake, {"event_id": "a", "user_id": "bob"})
    link, expiring = _link(lake), _link(lake, 60)
    assert _left(lake) == {
        f"{ISSUED}{each.id}.json": "it contains a value of the condition: end the token or link with "
        f"`alluvia token revoke {each.id}`, then erase again"
        for each in (link, expiring)
    }
    revoke(lake.store, lake.clock, link)
    clock.advance(200)
    report = lake.table("events").erase(WHERE, prove=True)
    assert (report.ok, report.removed) == (True, {ENDED_TEXTS: 2})
    assert (issued(lake.store, lake.clock), is_revoked(lake.store, link.id, link.expires_s)) == ([], True)


def test_links_with_other_values_stay_on_record(lake: Lake) -> None:
    post(lake, {"event_id": "a", "user_id": "bob"})
    link = _link(lake)
    revoke(lake.store, lake.clock, link)
    assert _left(lake, "user_id = 'bob'") == {}
    assert [each.claims.id for each in issued(lake.store, lake.clock)] == [link.id]


def test_replaced_and_dropped_versions_of_a_view_are_deleted(disk: Lake) -> None:
    post(disk, {"event_id": "a", "user_id": "bob"})
    view = f"CREATE OR REPLACE VIEW v AS SELECT * FROM events WHERE properties ->> 'user_id' = '{VICTIM}'"
    disk.sql(view)
    assert list(_left(disk).values()) == [
        "it contains a value of the condition: replace or drop view v, then erase again"
    ]
    disk.sql("CREATE OR REPLACE VIEW v AS SELECT * FROM events")
    assert _left(disk) == {}
    assert disk.sql("SELECT count(*) AS n FROM v").to_pylist() == [{"n": 1}]
    disk.sql(view)
    disk.sql("DROP VIEW v")
    assert _left(disk) == {}


def test_a_published_query_is_deleted_once_it_is_withdrawn(disk: Lake) -> None:
    post(disk, {"event_id": "a", "user_id": "bob"})
    query = f"SELECT * FROM events WHERE properties ->> 'user_id' = '{VICTIM}'"
    disk.publish_query("q", query)
    disk.publish_query("q", "SELECT 1 AS one")
    assert list(_left(disk).values()) == [
        "it contains a value of the condition: withdraw the query with `alluvia unpublish q`, then erase again"
    ]
    disk.unpublish_query("q")
    disk.publish_query("q", "SELECT 2 AS two")
    assert _left(disk) == {}


def test_the_reason_of_a_failed_run_is_deleted(disk: Lake) -> None:
    post(disk, {"event_id": "a", "user_id": "bob"})
    for table, error in (("silver", f"row {{'user_id': '{VICTIM}'}} fails"), ("gold", "no time")):
        note_failure(disk.store, disk.clock, table, error)
    assert _left(disk) == {}
    assert (read_failure(disk.store, "silver"), read_failure(disk.store, "gold") is None) == (None, False)


def test_a_dry_run_counts_the_rows_that_it_would_erase(lake: Lake) -> None:
    post(lake, {"event_id": "a", "user_id": VICTIM}, {"event_id": "b", "user_id": VICTIM}, {"event_id": "c"})
    report = lake.table("events").erase(WHERE, dry_run=True)
    assert (report.rows, lake.table("events").count()) == (2, 3)
