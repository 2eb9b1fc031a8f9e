"""Every function in its own layers, on every kind of table: see `lambda_runtime.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pyarrow as pa
import pytest

import alluvia
from alluvia.operations.results.jobs import ask_job
from infra import specs
from infra.specs import BACKFILL, COMMIT, INGEST, JOBS, MERGE, PIPELINE, QUERY, SQL, UPLOAD, VACUUM, Spec
from tests.infra.conftest import ROOT
from tests.infra.lambda_runtime import Deployed, Json
from tests.s3server import CREDENTIALS, REGION

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("layers")]


@pytest.fixture
def deployed(deployed: Deployed) -> Deployed:
    """The functions on a lake with a table of every kind."""
    for name in TABLES:
        make(deployed.lake, name)
    return deployed


TABLES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "constrained": {"delta.constraints.positive": "amount > 0 OR amount IS NULL"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "evolved": {},
    "partitioned": {},
    "v2": {"delta.checkpointPolicy": "v2"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "open": {"alluvia.writers": "any"},
}
"""Each kind of table, with its properties."""
KEPT = ["old-0", "old-2"]
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def make(lake: alluvia.Lake, name: str) -> None:
    """Make a table of three events, of which one was deleted."""
    columns = pa.schema([("amount", pa.int64()), ("kind", pa.string())])
    partition_by = ["kind"] if name == "partitioned" else ["day(ts)"]
    table = lake.create_events(name, columns, partition_by=partition_by, properties=TABLES[name])
    times = {"ts": NOON, "received_at": NOON}
    rows = [{"event_id": f"old-{n}", "amount": n + 1, "kind": "a", **times} for n in range(3)]
    table.append(rows[:2])
    table.append(rows[2:])
    if name == "evolved":
        table.evolve(add=pa.schema([("late", pa.string())]))
    if name == "v2":
        table.checkpoint()
    table.delete("event_id = 'old-1'")
    assert any(file.deletion_vector for file in table.snapshot().files) == (name == "vectors")


def sample(name: str) -> Json:
    return dict(json.loads((ROOT / "events" / f"{name}.json").read_text()))


def post(table: str, *events: Json) -> Json:
    path = f"/v1/events/{table}"
    request = sample("ingest_api_gateway") | {"rawPath": path, "body": json.dumps(events), "isBase64Encoded": False}
    request["requestContext"]["http"]["path"] = path
    return request


def new(number: int, **fields: Any) -> Json:
    return {"event_id": f"new-{number}", "event": "tried", "kind": "b", "amount": 7, "late": "x", **fields}


def body_of(answer: Json) -> Json:
    return dict(json.loads(answer["body"]))


def test_no_function_is_left_out() -> None:
    assert {each for each in vars(specs).values() if isinstance(each, Spec)} == {
        *(INGEST, COMMIT, MERGE, PIPELINE, QUERY, JOBS, SQL, UPLOAD, VACUUM, BACKFILL)
    }


def test_ingest_stores_events_in_every_kind_of_table(deployed: Deployed) -> None:
    answers = dict(zip(TABLES, deployed.run(INGEST, *(post(name, new(1), new(2)) for name in TABLES)), strict=True))
    assert {name: answer["statusCode"] for name, answer in answers.items()} == dict.fromkeys(TABLES, 200)
    assert {name: body_of(answer)["accepted"] for name, answer in answers.items()} == dict.fromkeys(TABLES, 2)
    assert {name: deployed.ids(name) for name in TABLES} == {name: ["new-1", "new-2", *KEPT] for name in TABLES}


def test_ingest_refuses_what_breaks_a_constraint_and_keeps_it(deployed: Deployed) -> None:
    (answer,) = deployed.run(INGEST, post("constrained", new(1), new(2, amount=-1)))
    assert answer["statusCode"] == 200
    assert deployed.ids("constrained") == ["new-1", *KEPT]
    (reason,) = deployed.lake.table("constrained/_rejects").scan(["reason"]).read_all()["reason"].to_pylist()
    assert "positive" in reason


INGEST_LOADS = {
    *("aws_lambda_powertools", "jmespath", "typing_extensions"),
    "botocore",  # no more than its package, by Powertools
    *("obstore", "orjson", "pyarrow", "cython_runtime"),
}
"""Packages that ingestion may load; each lengthens a cold start."""


def test_ingest_loads_no_duckdb_even_with_a_simple_constraint(deployed: Deployed) -> None:
    ran = deployed.loaded(INGEST, *(post(name, new(1)) for name in TABLES))
    for modules in (ran.cold, ran.warm):
        loaded = {name.partition(".")[0] for name in modules if not name.startswith("_")}
        assert loaded - set(sys.stdlib_module_names) - {"alluvia", "functions"} <= INGEST_LOADS
        assert not [name for name in modules if name.startswith("alluvia.query")]


def test_events_go_through_the_queue_into_every_kind_of_table(deployed: Deployed) -> None:
    address = deployed.environment["AWS_ENDPOINT_URL"]
    client = boto3.client("sqs", endpoint_url=address, region_name=REGION, **CREDENTIALS)
    url = client.create_queue(QueueName=deployed.environment["ALLUVIA_LAKE"].split("/")[2])["QueueUrl"]
    requests = [post(name, new(1), new(2)) for name in TABLES]
    queued = deployed.run(INGEST, *requests, ALLUVIA_MODE="queued", ALLUVIA_QUEUE_URL=url)
    assert [answer["statusCode"] for answer in queued] == [202] * len(TABLES)
    records = []
    while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        records += [
            sample("ingest_sqs")["Records"][0] | {"messageId": m["MessageId"], "body": m["Body"]} for m in messages
        ]
    assert len(records) == len(TABLES)
    assert deployed.run(COMMIT, {"Records": records}) == [{"batchItemFailures": []}]
    assert {name: deployed.ids(name) for name in TABLES} == {name: ["new-1", "new-2", *KEPT] for name in TABLES}


def test_merge_makes_one_file_of_every_kind_of_table(deployed: Deployed) -> None:
    (answer,) = deployed.run(MERGE, {"tables": list(TABLES)})
    assert {report["table"]: report["files_after"] for report in answer["tables"]} == dict.fromkeys(TABLES, 1)
    assert {name: deployed.ids(name) for name in TABLES} == dict.fromkeys(TABLES, KEPT)


def test_pipeline_brings_a_rollup_up_to_date(deployed: Deployed) -> None:
    rollup = deployed.lake.create_rollup("kinds", "SELECT kind, count(*) AS n FROM plain GROUP BY kind")
    times = {"ts": NOON, "received_at": NOON}
    deployed.lake["plain"].append([{"event_id": "old-3", "amount": 4, "kind": "b", **times}])
    (answer,) = deployed.run(PIPELINE, {"tables": ["plain"]})
    assert [each["table"] for each in answer["tables"]] == ["kinds"]
    assert sorted(map(tuple, map(dict.values, rollup.scan(["kind", "n"]).read_all().to_pylist()))) == [
        ("a", 2),
        ("b", 1),
    ]


def test_query_reads_every_kind_of_table(deployed: Deployed) -> None:
    texts = [f"SELECT event_id, amount FROM {name} WHERE kind = 'a' ORDER BY ALL" for name in TABLES]
    ran = deployed.run(QUERY, *({"query": text, "accept": "application/json"} for text in texts))
    answers = dict(zip(TABLES, ran, strict=True))
    assert {name: answer["statusCode"] for name, answer in answers.items()} == dict.fromkeys(TABLES, 200), answers
    rows = {name: json.loads(answer["body"]) for name, answer in answers.items()}
    kept = [{"event_id": "old-0", "amount": 1}, {"event_id": "old-2", "amount": 3}]
    assert rows == dict.fromkeys(TABLES, kept)


def test_jobs_runs_a_query_to_its_end(deployed: Deployed) -> None:
    text = "SELECT event_id FROM plain WHERE kind = 'a' ORDER BY ALL"
    request = {"text": text, "parameters": None, "format": "csv", "coding": None}
    job = ask_job(deployed.lake.store, deployed.lake.clock, {"request": request, "owner": "", "rights": None})
    first, again = deployed.run(JOBS, {"job": job.id}, {"job": job.id})
    assert (first, again) == ({"job": job.id, "state": "done"}, {"job": job.id, "state": None})
    (result,) = deployed.lake.store.list("_alluvia/results/large/")
    assert deployed.lake.store.get(result.key).split() == [b"event_id", b"old-0", b"old-2"]


def test_sql_writes_to_tables_of_several_kinds_at_once(deployed: Deployed) -> None:
    changed = ("plain", "partitioned", "v2")
    text = "; ".join(f"UPDATE {name} SET amount = amount + $n WHERE kind = 'a'" for name in changed)
    request = {"query": f"{text}; SELECT sum(amount) AS s FROM plain", "parameters": {"n": 10}}
    (answer,) = deployed.run(SQL, request, ALLUVIA_ALLOW_WRITES="true")
    assert (answer["statusCode"], answer["body"].strip()) == (200, '{"s":24}')
    amounts = {name: deployed.lake.table(name).to_arrow()["amount"].to_pylist() for name in changed}
    assert {name: sorted(found) for name, found in amounts.items()} == {name: [11, 13] for name in changed}


def test_vacuum_goes_through_every_kind_of_table(deployed: Deployed) -> None:
    answers = deployed.run(VACUUM, {"dry_run": True}, {})
    for answer in answers:
        assert sorted(report["table"] for report in answer["tables"]) == sorted(TABLES)
        assert not [report for report in answer["tables"] if "error" in report]
    assert {name: deployed.ids(name) for name in TABLES} == dict.fromkeys(TABLES, KEPT)


def test_backfill_starts_a_job_and_tells_how_it_does(deployed: Deployed) -> None:
    address = deployed.environment["AWS_ENDPOINT_URL"]
    client = boto3.client("emr-serverless", endpoint_url=address, region_name=REGION, **CREDENTIALS)
    application = client.create_application(name="a", releaseLabel="emr-7.0.0", type="SPARK", clientToken="once")
    settings = {
        "ALLUVIA_EMR_APPLICATION_ID": application["applicationId"],
        "ALLUVIA_EMR_ROLE_ARN": "arn:aws:iam::123456789012:role/backfill",
        "ALLUVIA_CODE_URI": "s3://code/backfill/1",
    }
    (started,) = deployed.run(BACKFILL, sample("backfill_start"), **settings)
    asked = {"action": "status", "job_run_id": started["job_run_id"]}
    (status,) = deployed.run(BACKFILL, asked, **settings)
    assert status["job_run_id"] == started["job_run_id"]
