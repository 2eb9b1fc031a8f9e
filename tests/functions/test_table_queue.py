"""Merge and vacuum behind a queue: S3's notifications and a sweep's messages in, each table worked on once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

import alluvia
from alluvia.errors import Invalid, Unavailable
from alluvia.serverless import sqs_sender
from alluvia.serverless.rounds import MARGIN_MS
from alluvia.serverless.table_messages import message_for
from functions.merge.handler import handler as merge
from functions.vacuum.handler import handler as vacuum
from tests.functions.test_table_messages import notification
from tests.log_lines import Context, log_lines
from tests.rejects import create_rejects
from tests.samples import payload

FILES = 3
NO_RESULTS = {key: {"deleted": 0, "bytes_freed": 0, "kept": 0} for key in ("results", "uploads")}
"""What a sweep of vacuum says of kept results of queries, and of parts of uploads, where there are none."""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    """Three tables in small files, one of them of rejects."""
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    lake = alluvia.connect(str(tmp_path / "lake"))
    columns = {"n": "long"}
    for table in (lake.create_table("a", columns), create_rejects(lake, "a", columns), lake.create_table("b", columns)):
        for number in range(FILES):
            table.append([{"n": number}])
    return lake


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    sqs_sender.sqs.cache_clear()
    with mock_aws():
        url = boto3.client("sqs").create_queue(QueueName="tables")["QueueUrl"]
        monkeypatch.setenv("ALLUVIA_TABLES_QUEUE_URL", url)
        yield url
    sqs_sender.sqs.cache_clear()


def event(*bodies: str | bytes) -> dict[str, Any]:
    """An event of SQS whose messages are named by their place."""
    texts = [body if isinstance(body, str) else body.decode() for body in bodies]
    return {"Records": [{"messageId": str(at), "body": body} for at, body in enumerate(texts)]}


def committed(table: str, version: int) -> str:
    return notification(f"lake/{table}/_delta_log/{version:020}.json")


def failed(answer: dict[str, Any]) -> list[str]:
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


def files(lake: alluvia.Lake) -> dict[str, int]:
    return {name: len(lake[name].files) for name in lake.tables(rejects=True)}


def waiting(url: str) -> list[dict[str, Any]]:
    client, found = boto3.client("sqs"), []
    while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        found += [json.loads(message["Body"]) for message in messages]
    return sorted(found, key=str)


def test_a_notification_merges_the_due_files_of_its_table_only(lake: alluvia.Lake) -> None:
    assert failed(merge(event(committed("a/_rejects", 0)), Context("r"))) == []
    assert files(lake) == {"a": FILES, "a/_rejects": FILES, "b": FILES}
    for name in ("a/_rejects", "b"):
        for number in range(30):
            lake[name].append([{"n": number}])
    assert failed(merge(event(committed("a/_rejects", 30)), Context("r"))) == []
    assert files(lake) == {"a": FILES, "a/_rejects": 1, "b": FILES + 30}


def test_a_call_that_names_tables_can_be_limited_to_due_files(lake: alluvia.Lake) -> None:
    merge({"tables": ["a"], "when_due": True}, Context("r"))
    assert files(lake)["a"] == FILES
    merge({"tables": ["a"]}, Context("r"))
    assert files(lake)["a"] == 1


def test_all_messages_about_a_table_are_one_piece_of_work(lake: alluvia.Lake) -> None:
    bodies: list[str | bytes] = [
        committed("a", 0),
        message_for("a", swept=True),
        committed("a", 0),
        committed("b", 0),
        message_for("b"),
    ]
    with log_lines() as lines:
        assert failed(merge(event(*bodies), Context("r"))) == []
    done = [line for line in lines.parsed() if line["message"] == "done"]
    assert sorted(line["table"] for line in done) == ["a", "a/_rejects", "b"]
    assert files(lake) == {"a": 1, "a/_rejects": 1, "b": 1}
    assert sorted(lake["a"].to_arrow()["n"].to_pylist()) == [0, 1, 2]


def test_a_notification_that_a_later_one_does_the_work_of_is_done(lake: alluvia.Lake) -> None:
    for number in range(39):
        lake["b"].append([{"n": number}])
    assert lake["b"].version == 42
    assert failed(merge(event(committed("b", 30)), Context("r"))) == []
    assert files(lake)["b"] == FILES + 39
    assert failed(merge(event(committed("b", 40), committed("b", 30)), Context("r"))) == []
    assert files(lake)["b"] == 1


def test_a_table_that_has_nothing_to_do_gets_no_commit(lake: alluvia.Lake) -> None:
    merge(event(message_for("b")), Context("r"))
    version = lake["b"].version
    assert failed(merge(event(message_for("b"), committed("b", 0)), Context("r"))) == []
    assert lake["b"].version == version


def test_messages_about_tables_that_are_gone_are_done(lake: alluvia.Lake) -> None:
    lake.drop_table("b")
    bodies: list[str | bytes] = [
        committed("b", 0),
        message_for("b", swept=True),
        committed("never", 0),
        message_for("never"),
    ]
    with log_lines() as lines:
        assert failed(merge(event(*bodies), Context("r"))) == []
    assert {line["level"] for line in lines.parsed()} == {"INFO"}


def test_a_message_that_cannot_be_read_blocks_no_other_and_is_told_by_its_id(lake: alluvia.Lake) -> None:
    test_event = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "x"})
    with log_lines() as lines:
        assert failed(merge(event("poison", message_for("a"), '{"table": 1}', test_event), Context("r"))) == ["0", "2"]
    assert files(lake)["a"] == 1
    told = [line for line in lines.parsed() if line["message"] == "a message cannot be read"]
    assert [(line["message_id"], line["level"]) for line in told] == [("0", "WARNING"), ("2", "WARNING")]
    assert told[0]["reason"] == "the message is not JSON"
    assert lines.parsed()[-1]["failed_messages"] == 2


def test_a_table_that_fails_takes_its_own_messages_along(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = alluvia.Table.optimize

    def fail(self: alluvia.Table, **options: Any) -> Any:
        if self.name == "a":
            raise Unavailable("the store went away")
        return real(self, **options)

    monkeypatch.setattr(alluvia.Table, "optimize", fail)
    bodies = [message_for("a"), message_for("a", swept=True), message_for("b"), message_for("a/_rejects")]
    assert failed(merge(event(*bodies), Context("r"))) == ["0", "1"]
    assert files(lake) == {"a": FILES, "a/_rejects": 1, "b": 1}


def test_what_there_was_no_time_for_goes_back_into_the_queue(
    lake: alluvia.Lake, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alluvia.serverless.rounds.TABLES_AT_ONCE", 1)
    assert failed(merge(event(message_for("a"), message_for("b")), Context("r", MARGIN_MS))) == []
    assert files(lake) == {"a": 1, "a/_rejects": FILES, "b": FILES}
    assert waiting(queue) == [{"table": "b"}]


def test_a_table_that_a_worker_left_something_of_goes_back_into_the_queue(lake: alluvia.Lake, queue: str) -> None:
    parts = lake.create_table("parts", {"p": "long", "n": "long"}, partition_by=["p"])
    for number in range(4):
        parts.append([{"p": number % 2, "n": number}])
    assert failed(merge(event(message_for("parts")), Context("r", 0))) == []
    (again,) = waiting(queue)
    assert (again, len(parts.files)) == ({"table": "parts"}, 3)
    assert failed(merge(event(json.dumps(again)), Context("r", 0))) == []
    assert (waiting(queue), len(parts.files)) == ([], 2)


def test_what_cannot_go_back_into_the_queue_fails_and_so_comes_again(
    lake: alluvia.Lake, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alluvia.serverless.rounds.TABLES_AT_ONCE", 1)
    boto3.client("sqs").delete_queue(QueueUrl=queue)
    assert failed(merge(event(committed("a", 0), committed("b", 0)), Context("r", MARGIN_MS))) == ["1"]
    monkeypatch.delenv("ALLUVIA_TABLES_QUEUE_URL")
    assert failed(merge(event(committed("a/_rejects", 0), committed("b", 0)), Context("r", MARGIN_MS))) == ["1"]


@pytest.mark.parametrize("name", ["merge_schedule", "vacuum_schedule"])
def test_a_sweep_puts_a_message_for_each_table_into_the_queue_and_looks_at_none(
    lake: alluvia.Lake, queue: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(23):
        lake.create_table(f"t{number:02}", {"n": "long"})
    run = merge if name == "merge_schedule" else vacuum
    assert run(payload(name), Context("r", 0)) == {"tables_enqueued": 25} | (NO_RESULTS if run is vacuum else {})
    sent = waiting(queue)
    names = sorted(["a", "b", *(f"t{number:02}" for number in range(23))])
    assert sent == [{"sweep": True, "table": each} for each in names]
    assert files(lake)["a"] == FILES
    assert failed(run(event(*map(json.dumps, sent)), Context("r"))) == []
    if run is merge:
        assert set(files(lake).values()) == {0, 1}


def test_a_sweep_that_the_queue_does_not_take_fails(lake: alluvia.Lake, queue: str) -> None:
    boto3.client("sqs").delete_queue(QueueUrl=queue)
    with pytest.raises(Unavailable, match="the queue did not take the messages"):
        merge({}, Context("r"))


def test_vacuum_takes_the_dropped_tables_of_a_sweep(
    lake: alluvia.Lake, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLUVIA_RETENTION_HOURS", "0")
    lake.drop_table("a")
    assert vacuum({}, Context("r")) == {"tables_enqueued": 2} | NO_RESULTS
    with log_lines() as lines:
        assert failed(vacuum(event(*map(json.dumps, waiting(queue))), Context("r"))) == []
    freed = {line["table"]: line["data_files"] for line in lines.parsed() if line["message"] == "done"}
    assert freed == {"a": FILES, "a/_rejects": FILES, "b": 0}


def test_calls_that_name_tables_and_dry_runs_use_no_queue(lake: alluvia.Lake, queue: str) -> None:
    assert [each["table"] for each in merge({"tables": ["b"]}, Context("r"))["tables"]] == ["b"]
    report = vacuum({"dry_run": True}, Context("r"))
    assert sorted(each["table"] for each in report["tables"]) == ["a", "a/_rejects", "b"]
    assert waiting(queue) == []


@pytest.mark.parametrize("records", [None, {}, [5], [{"s3": {"bucket": {}}}], [{"messageId": "m", "body": {}}]])
@pytest.mark.parametrize("run", [merge, vacuum])
def test_records_that_are_no_messages(lake: alluvia.Lake, run: Any, records: object) -> None:
    with pytest.raises(Invalid, match="Records: expected SQS messages"):
        run({"Records": records}, Context("r"))
