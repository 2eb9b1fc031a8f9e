"""A table that holds `properties` as a variant does all that one with text does, or says why not."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.access.rights import READ, Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.delta.schema.variant_shredding import FORM_TAG
from alluvia.errors import Invalid, Unsupported
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.query.engine import run
from alluvia.query.permitted import permitted
from alluvia.store import MemoryStore

ARRIVAL_US = 1_700_000_000_000_000
VARIANT = {"alluvia.properties": "variant"}
TS = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MANY: list[dict[str, Any]] = [
    {"event_id": f"e{n}", "amount": n / 4, "n": n, "o": {"z": [n, None]}, "user_id": f"u{n % 9}"} for n in range(1500)
]
ODD: list[dict[str, Any]] = [
    {"event_id": "odd", "amount": "many", "exact": 0.1, "x.y": None, "é": {"b": 1, "a": 2}},
    {"event_id": "none"},
]
FEATURES = ("variantType", "variantShredding")


def new_lake(name: str, **properties: str) -> Lake:
    made = Lake(MemoryStore(name), ManualClock(ARRIVAL_US, 7))
    made.create_events("clicks", properties={**VARIANT, **properties})
    made["clicks"].ingest(MANY)
    made["clicks"].ingest(ODD)
    return made


@pytest.fixture
def lake() -> Lake:
    return new_lake("variant")


def row(event_id: str, properties: str) -> dict[str, Any]:
    return {"event_id": event_id, "ts": TS, "received_at": TS, "properties": properties}


def texts(lake: Lake, table: str = "clicks") -> dict[str, Any]:
    """Return what is in `properties`, by event, after a look whether scans and SQL agree."""
    found = lake[table].scan(["event_id", "properties"]).read_all().to_pylist()
    by_sql = lake.sql(f"SELECT event_id, properties FROM {table}").to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, by_sql))
    return {row["event_id"]: row["properties"] and json.loads(row["properties"]) for row in found}


def sent(*events: dict[str, Any]) -> dict[str, Any]:
    fields = [({**each}.pop("event_id"), {k: v for k, v in each.items() if k != "event_id"}) for each in events]
    return {event_id: rest or None for event_id, rest in fields}


def forms(lake: Lake, table: str = "clicks") -> list[Any]:
    return sorted((json.loads(file.tags[FORM_TAG]) for file in lake[table].snapshot().files), key=len)


def test_events_come_back_and_files_have_columns_of_their_fields(lake: Lake) -> None:
    assert texts(lake) == sent(*MANY, *ODD)
    assert forms(lake) == [{}, {"amount": "double", "n": "long", "o": "", "user_id": "string"}]
    protocol = lake["clicks"].snapshot().protocol
    assert protocol.reader_features == FEATURES
    assert set(FEATURES) <= set(protocol.writer_features or ())
    assert lake["clicks"].snapshot().properties["delta.enableVariantShredding"] == "true"
    [file] = [each for each in lake["clicks"].snapshot().files if each.num_records == len(MANY)]
    assert json.loads(file.stats or "")["nullCount"]["properties"] == 0
    assert "properties" not in json.loads(file.stats or "")["minValues"]


def test_a_query_reads_the_column_of_a_field_alone(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    lake.create_events("clicks", properties=VARIANT)
    lake["clicks"].ingest(MANY)
    explained = "\n".join(map(str, lake.sql("EXPLAIN SELECT max(properties->>'user_id') FROM clicks").to_pylist()))
    assert "user_id" in explained
    assert "amount" not in explained
    [path] = tmp_path.glob("clicks/**/part-*.parquet")
    names = {pq.ParquetFile(path).schema.column(at).path for at in range(len(pq.ParquetFile(path).schema))}
    assert {"properties.typed_value.user_id.typed_value", "properties.value", "properties.metadata"} <= names


def test_merges_keep_values_and_give_all_files_columns(lake: Lake) -> None:
    lake["clicks"].optimize(full=True)
    assert texts(lake) == sent(*MANY, *ODD)
    [form] = forms(lake)
    assert form["user_id"] == "string"


def test_digits_that_duckdb_would_round_survive_queries_and_merges(lake: Lake) -> None:
    text = '{"a":0.1234567890123456789,"n":7}'
    lake["clicks"].append([row(f"long-{n}", text) for n in range(10)])
    lake["clicks"].optimize(full=True)
    lake["clicks"].append([row(f"last-{n}", text) for n in range(10)])
    lake["clicks"].optimize(full=True)
    query = "SELECT DISTINCT properties FROM clicks WHERE event_id LIKE 'long%' OR event_id LIKE 'last%'"
    assert lake.sql(query).to_pylist() == [{"properties": text}]


def test_rows_are_changed(lake: Lake) -> None:
    lake.sql("UPDATE clicks SET properties = '{\"k\": 1,  \"a\": [1, 2]}' WHERE properties->>'user_id' = 'u3'")
    lake.sql("DELETE FROM clicks WHERE properties->>'user_id' = 'u4'")
    lake.sql(
        "MERGE INTO clicks USING (VALUES ('e5', '{\"m\":1}'), ('new', '[]')) AS s(id, p) ON event_id = s.id "
        "WHEN MATCHED THEN UPDATE SET properties = s.p "
        "WHEN NOT MATCHED THEN INSERT (event_id, ts, received_at, properties) VALUES (id, now(), now(), p)"
    )
    lake["clicks"].upsert([row("e6", '"text"')], on=["event_id"])
    expected = sent(*MANY, *ODD) | {"e5": {"m": 1}, "new": [], "e6": "text"}
    for event in MANY:
        if event["user_id"] == "u3":
            expected[event["event_id"]] = {"k": 1, "a": [1, 2]}
        elif event["user_id"] == "u4":
            del expected[event["event_id"]]
    assert texts(lake) == expected
    assert lake["clicks"].verify().ok


def test_what_is_not_json_is_refused_in_rows_and_rejected_in_events(lake: Lake) -> None:
    for text, why in (("plain", "a text is not: not valid JSON"), ('{"a":1e400}', "1e400 is larger than any number")):
        with pytest.raises(Invalid, match=why):
            lake["clicks"].append([row("bad", text)])
    found = split(
        b'{"event_id":"good","a":1e300}\n{"event_id":"bad","a":-1e400}\n', content_type=None, content_encoding=None,
        limits=Limits(),
    )  # fmt: skip
    answer = ingest_batch(lake.catalog, "clicks", found.events, found.rejects, arrival_us=ARRIVAL_US)
    assert (answer.stored, answer.rejected) == (1, 1)
    [reject] = lake["clicks/_rejects"].scan().read_all().to_pylist()
    assert "-1e400 is larger than any number that the table stores: send it as text" in reject["reason"]


def test_the_change_feed_and_deletion_vectors() -> None:
    feature = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    lake = new_lake("variant-feed", **feature)
    lake.sql("UPDATE clicks SET properties = '{\"k\":1}' WHERE event_id = 'e1'")
    lake.sql("DELETE FROM clicks WHERE event_id = 'e2'")
    changed = lake.sql("SELECT _change_type AS kind, properties FROM changes('clicks', 3, 4) ORDER BY 1, 2").to_pylist()
    assert [(row["kind"], json.loads(row["properties"]).get("n", 1)) for row in changed] == [
        ("delete", 2), ("update_postimage", 1), ("update_preimage", 1),
    ]  # fmt: skip
    assert len(texts(lake)) == len(MANY) + len(ODD) - 1


def test_promoted_fields_have_one_meaning(lake: Lake) -> None:
    clicks = lake["clicks"]
    clicks.evolve(add={"user_id": "string"})
    clicks.ingest([{"event_id": "later", "user_id": "u8", "n": 1}])
    distinct = "count(DISTINCT properties->>'user_id') AS a, count(DISTINCT user_id) AS b"
    query = f"SELECT {distinct}, count(user_id) AS c FROM clicks"
    counts = {"a": 9, "b": 9, "c": len(MANY) + 1}
    assert lake.sql(query).to_pylist() == [counts]
    assert lake.sql("SELECT properties->>'n' AS n FROM clicks WHERE user_id = 'u8' ORDER BY 1 LIMIT 1").to_pylist()
    before = texts(lake)
    clicks.optimize(backfill=True)
    assert lake.sql(query).to_pylist() == [counts]
    assert texts(lake) == before == sent(*MANY, *ODD, {"event_id": "later", "user_id": "u8", "n": 1})
    assert {"user_id"} not in map(set, forms(lake))


def test_hidden_columns_and_row_filters(lake: Lake) -> None:
    lake["clicks"].evolve(add={"user_id": "string"})
    grant = Grant(frozenset({READ}), ("*",), "properties->>'n' = '7'", frozenset({"user_id"}))
    seen = permitted(lake.catalog, Rights((grant,)))
    found = run(seen, "SELECT properties, properties->>'user_id' AS u FROM clicks").read_all().to_pylist()
    assert [(json.loads(row["properties"]), row["u"]) for row in found] == [
        ({"amount": 1.75, "n": 7, "o": {"z": [7, None]}}, None)
    ]


def test_streams_rollups_views_tags_and_branches(lake: Lake) -> None:
    stream = lake.create_stream("new", "clicks")
    lake.create_rollup("users", "SELECT properties->>'user_id' AS u, count(*) AS c FROM clicks GROUP BY 1")
    lake.sql("CREATE VIEW seventh AS SELECT properties->>'user_id' AS u FROM clicks WHERE properties->>'n' = '7'")
    lake["clicks"].ingest([{"event_id": "later", "user_id": "u1", "n": 7}])
    assert lake.sql("SELECT c FROM users_live WHERE u = 'u1'").to_pylist() == [{"c": 168}]
    assert sorted(row["u"] for row in lake.sql("SELECT u FROM seventh").to_pylist()) == ["u1", "u7"]
    [row] = lake.sql("SELECT properties->>'user_id' AS u FROM new").to_pylist()
    assert (row["u"], stream.name) == ("u1", "new")


def test_copies_restores_and_replacements(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.create_events("clicks", properties=VARIANT)
    lake["clicks"].ingest(MANY)
    lake.sql("CREATE TABLE twin SHALLOW CLONE clicks")
    lake["twin"].ingest(ODD)
    assert texts(lake, "twin") == sent(*MANY, *ODD)
    lake.backup(str(tmp_path / "copy"))
    assert texts(alluvia.connect(str(tmp_path / "copy"))) == sent(*MANY)
    lake.sql("CREATE TABLE words AS SELECT event_id, properties FROM clicks")
    lake.sql(
        "CREATE OR REPLACE TABLE words TBLPROPERTIES ('alluvia.properties' = 'variant') "
        "AS SELECT event_id, properties FROM clicks"
    )
    assert set(FEATURES) <= set(lake["words"].snapshot().protocol.writer_features or ())
    assert lake.sql("SELECT count(properties->>'n') AS n FROM words").to_pylist() == [{"n": len(MANY)}]
    lake["words"].restore(0)
    assert texts(lake, "words") == sent(*MANY)
    lake["words"].restore(1)
    assert texts(lake, "words") == sent(*MANY)
    assert lake["words"].verify().ok


def test_erasure_finds_fields(lake: Lake) -> None:
    lake["clicks"].erase("user_id = 'u5'")
    left = [event for event in MANY if event["user_id"] != "u5"]
    assert texts(lake) == sent(*left, *ODD)


def test_a_checkpoint_has_what_readers_need(lake: Lake) -> None:
    lake["clicks"].checkpoint()
    again = Lake(lake.store, ManualClock(ARRIVAL_US, 8))
    assert texts(again) == sent(*MANY, *ODD)
    assert again["clicks"].verify(full=True).ok
    assert again.sql("SELECT count(*) AS n FROM clicks WHERE properties IS NULL").to_pylist() == [{"n": 1}]


def test_the_statement_that_creates_it_is_shown(lake: Lake) -> None:
    [shown] = lake.sql("SHOW CREATE TABLE clicks").to_pylist()
    text = shown["create_statement"].replace("clicks", "again")
    assert "'alluvia.properties' = 'variant'" in text
    lake.sql(text)
    assert lake["again"].snapshot().protocol.reader_features == FEATURES


@pytest.mark.parametrize("given", ["text", None])
def test_a_table_keeps_its_form(lake: Lake, given: str | None) -> None:
    with pytest.raises(Invalid, match=r"property alluvia.properties cannot be changed: .*create another table"):
        lake["clicks"].evolve(properties={"alluvia.properties": given})
    with pytest.raises(Invalid, match=r"delta.enableVariantShredding cannot be (set|removed)"):
        lake["clicks"].evolve(properties={"delta.enableVariantShredding": given})


def test_what_cannot_be_is_refused_by_name() -> None:
    lake = Lake(MemoryStore("refused"), ManualClock(ARRIVAL_US, 7))
    with pytest.raises(Invalid, match="needs a column properties of the type string"):
        lake.create_table("t", {"event_id": "string"}, properties=VARIANT)
    for name, why in (("bloom_filters", "not a column of text or whole numbers"), ("cluster_by", "no bounds")):
        lists = {"alluvia.bloom_filters": '["properties"]'} if name == "bloom_filters" else {}
        columns = ["properties"] if name == "cluster_by" else []
        with pytest.raises(Invalid, match=f"properties.*{why}"):
            lake.create_table("t", {"properties": "string"}, cluster_by=columns, properties={**VARIANT, **lists})
    with pytest.raises(Invalid, match="'json' is not valid; use one of 'text', 'variant'"):
        lake.create_events("t", properties={"alluvia.properties": "json"})
    with pytest.raises(Invalid, match=r"create the table with alluvia.properties = 'variant'"):
        lake.create_events("t", properties={"delta.enableVariantShredding": "true"})
    with pytest.raises(Invalid, match=r"TBLPROPERTIES \('alluvia.properties' = 'variant'\) for the column properties"):
        lake.sql("CREATE TABLE t (event_id STRING, properties VARIANT)")


def test_tables_of_others_with_variants_are_still_not_written(lake: Lake) -> None:
    metadata = lake["clicks"].snapshot().state.metadata
    foreign = orjson.loads(metadata.schema_string)
    foreign["fields"].append({"name": "v", "type": "variant", "nullable": True, "metadata": {}})
    key = "clicks/_delta_log/00000000000000000003.json"
    action = {
        "metaData": {
            "id": metadata.id, "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
            "schemaString": orjson.dumps(foreign).decode(), "configuration": dict(metadata.configuration),
        }
    }  # fmt: skip
    info = {"commitInfo": {"inCommitTimestamp": ARRIVAL_US // 1000 + 10, "timestamp": 1}}
    lake.store.put_new(key, orjson.dumps(info) + b"\n" + orjson.dumps(action) + b"\n")
    again = Lake(lake.store, ManualClock(ARRIVAL_US + 10_000_000, 9))
    with pytest.raises(Unsupported, match="a column of the type variant besides properties"):
        again["clicks"].append([row("x", "{}")])


def test_a_renamed_column_stays_a_variant() -> None:
    lake = Lake(MemoryStore("renamed"), ManualClock(ARRIVAL_US, 7))
    plain = lake.create_table("plain", {"n": "long", "properties": "string"}, properties=VARIANT)
    plain.append([{"n": n, "properties": f'{{"user_id":"u{n % 9}"}}'} for n in range(1200)])
    plain.evolve(rename={"properties": "fields"})
    plain.append([{"n": -1, "fields": '{"user_id":"u1"}'}])
    lake.sql('UPDATE plain SET fields = \'{"user_id":"u2"}\' WHERE n = 0')
    assert lake.sql("SELECT count(*) AS n FROM plain WHERE fields->>'user_id' = 'u1'").to_pylist() == [{"n": 135}]
    plain.evolve(add={"properties": "string"})
    plain.optimize(full=True)
    found = lake.sql("SELECT fields->>'user_id' AS u, properties->>'user_id' AS p FROM plain WHERE n = 0")
    assert found.to_pylist() == [{"u": "u2", "p": None}]
    with pytest.raises(Invalid, match="which CREATE TABLE cannot make"):
        lake.sql("SHOW CREATE TABLE plain")


def test_merge_queries(lake: Lake) -> None:
    query = "SELECT event_id, max(properties) AS properties, max(ts) AS ts FROM source GROUP BY event_id"
    lake.create_table(
        "latest",
        {"event_id": "string", "properties": "string", "ts": "timestamp"},
        properties={**VARIANT, "alluvia.merge_query": query},
    )
    for day in (1, 2):
        moment = dt.datetime(2024, 1, day, tzinfo=dt.UTC)
        rows = [{"event_id": f"e{n}", "properties": f'{{"day":{day},"n":{n}}}', "ts": moment} for n in range(1200)]
        lake["latest"].append(rows)
    lake["latest"].optimize(full=True)
    found = lake.sql("SELECT count(*) AS n, min(properties->>'day') AS day FROM latest").to_pylist()
    assert found == [{"n": 1200, "day": "2"}]


def test_promoted_fields_are_those_of_tables_with_text() -> None:
    lake = Lake(MemoryStore("alike"), ManualClock(ARRIVAL_US, 7))
    values = [12, 12.5, "many", "2026-11-20T10:00Z", 1_700_000_000, None, True, {"a": 1}, 1.0, "12"]
    events = [{"event_id": f"e{n}", "at": values[n % 10], "amount": values[n % 9], "k": n} for n in range(1200)]
    query = (
        "SELECT event_id, \"at\", amount, properties->>'at' AS t, properties->>'amount' AS a, properties->>'k' AS k, "
        "json_type(properties, '$.amount') AS kind FROM {} ORDER BY event_id"
    )
    answers: dict[str, list[Any]] = {}
    for name, properties in (("texts", {}), ("variants", VARIANT)):
        lake.create_events(name, properties=properties)
        lake[name].ingest(events[:600])
        lake[name].evolve(add={"at": "timestamp", "amount": "double"})
        lake[name].ingest(events[600:])
        answers[name] = [lake.sql(query.format(name)).to_pylist()]
        lake[name].optimize(backfill=True)
        answers[name].append(lake.sql(query.format(name)).to_pylist())
        lake.sql(f"UPDATE {name} SET amount = 7 WHERE event_id = 'e1'")
        lake.sql(f"UPDATE {name} SET properties = '{{\"amount\":8,\"k\":0}}' WHERE event_id = 'e2'")
        answers[name].append(lake.sql(query.format(name)).to_pylist())
    assert answers["variants"] == answers["texts"]
