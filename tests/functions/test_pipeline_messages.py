"""The pipeline function with a queue: a message for each derived table that is due."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError
from alluvia.pipelines.marks import put_marks, read_failure
from alluvia.serverless import warm_lake
from alluvia.serverless.table_messages import message_for
from alluvia.store import CountingStore, MemoryStore
from functions.pipeline.handler import handler
from tests.functions.derived import BAD, GOLD, MINUTE, SILVER, TABLES, append, declare, rows
from tests.functions.derived import clock as clock  # noqa: PLC0414 - a fixture
from tests.functions.derived import lake as lake  # noqa: PLC0414 - a fixture
from tests.functions.derived import queue as queue  # noqa: PLC0414 - a fixture
from tests.functions.test_table_queue import event, failed, waiting
from tests.log_lines import Context, log_lines
from tests.samples import payload


def test_a_tick_queues_what_is_due_and_each_message_runs_one_table(lake: Lake, tmp_path: Path, queue: str) -> None:
    declare(lake, tmp_path, SILVER, GOLD, BAD)
    assert handler(payload("pipeline_schedule"), Context("r")) == {"tables_enqueued": 0}
    append(lake, (2, "b", 5))
    with log_lines() as lines:
        assert handler(payload("pipeline_schedule"), Context("r")) == {"tables_enqueued": 2}
    assert lines.parsed()[-1]["tables_enqueued"] == 2
    handler({}, Context("r"))  # the same again, which the queue drops
    messages = waiting(queue)
    assert messages == [{"table": "bad"}, {"table": "silver"}]  # gold comes after silver
    assert failed(handler(event(*map(json.dumps, messages)), Context("r"))) == ["0"]
    assert rows(lake, "silver") == [(1, "a", 1), (2, "b", 5)]
    assert waiting(queue) == [{"table": "gold"}]
    assert failed(handler(event(message_for("gold"), message_for("gold")), Context("r"))) == []
    assert (rows(lake, "gold"), waiting(queue)) == ([("a", 1), ("b", 5)], [])
    version = lake["gold"].version
    assert failed(handler(event(message_for("gold")), Context("r"))) == []  # delivered again
    assert lake["gold"].version == version
    assert handler({}, Context("r")) == {"tables_enqueued": 0}


def test_messages_of_one_table_are_one_group(lake: Lake, tmp_path: Path, queue: str) -> None:
    declare(lake, tmp_path, SILVER)
    client = boto3.client("sqs")
    for number in (2, 3):
        append(lake, (number, "b", 5))
        handler({}, Context("r"))
    (first,) = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=1)["Messages"]
    assert "Messages" not in client.receive_message(QueueUrl=queue)  # while the first is worked on
    client.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    assert waiting(queue) == [{"table": "silver"}]


def test_a_poisoned_table_ends_among_the_dead_letters(lake: Lake, tmp_path: Path, queue: str) -> None:
    declare(lake, tmp_path, BAD)
    client = boto3.client("sqs")
    dead = client.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "3"})
    client.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})
    append(lake, (2, "b", 5))
    assert handler({}, Context("r")) == {"tables_enqueued": 1}
    for _ in range(3):
        (message,) = client.receive_message(QueueUrl=queue, AttributeNames=["All"])["Messages"]
        other = delivered(message["Body"], SentTimestamp=message["Attributes"]["SentTimestamp"])
        with log_lines() as lines:
            assert failed(handler(delivered(message["Body"], **message["Attributes"]), Context("r"))) == ["0"]
        assert any("broken" in str(line.get("exception")) for line in lines.parsed())
        assert handler({}, Context("r")) == {"tables_enqueued": 0}
        assert failed(handler(other, Context("r"))) == []  # another message does not disturb its rest
    assert "Messages" not in client.receive_message(QueueUrl=queue)
    assert waiting(dead) == [{"table": "bad"}]
    failure = read_failure(lake.store, "bad")
    assert failure is not None
    assert (failure.tries, "broken" in failure.error) == (3, True)


def test_one_run_answers_all_messages_that_were_sent_before_it(
    lake: Lake, tmp_path: Path, queue: str, clock: ManualClock
) -> None:
    declare(lake, tmp_path, SILVER)
    clock.sleep(MINUTE)
    first = delivered(message_for("silver").decode(), SentTimestamp=str(clock.now_ms()))
    append(lake, (2, "b", 5))
    clock.sleep(MINUTE)
    assert failed(handler(first, Context("r"))) == []
    assert lake["silver"].count() == 2
    append(lake, (3, "c", 6))
    assert failed(handler(first, Context("r"))) == []
    assert lake["silver"].count() == 2
    clock.sleep(MINUTE)
    later = delivered(message_for("silver").decode(), SentTimestamp=str(clock.now_ms()))
    assert failed(handler(later, Context("r"))) == []
    assert lake["silver"].count() == 3


def test_a_message_looks_at_its_table_and_its_neighbours_alone(clock: ManualClock, tmp_path: Path, queue: str) -> None:
    store = CountingStore(MemoryStore("lake", clock))
    lake = Lake(store, clock)
    lake.create_table("events", {"id": "long", "who": "string", "n": "long"}).append([{"id": 1, "who": "a", "n": 1}])
    declare(lake, tmp_path, SILVER, GOLD)
    objects = {key: store.get(key) for key in [each.key for each in store.list("silver/")]}
    for others in (range(10), range(10, 200)):
        for number in others:  # they are made of the same source
            put_marks(store, f"other{number}", ["events"])
            for key, data in objects.items():
                store.put(key.replace("silver", f"other{number}"), data)
        append(lake, (2, "b", 5))
        with warm_lake.using(Lake(store, clock)):
            store.reset()
            assert failed(handler(event(message_for("silver")), Context("r"))) == []
        assert not any(key.startswith("other") for _, key in store.keys)
        logs = {key for kind, key in store.keys if kind == "list"}
        assert logs == {"_alluvia/pipelines/", "_alluvia/rollups/", *(f"{name}/_delta_log/" for name in TABLES)}
        assert store.requests["list"] == 5
        assert sum(store.requests.values()) < 22
    assert {each["table"] for each in waiting(queue)} == {"gold"}


def delivered(body: str, **attributes: str) -> dict[str, Any]:
    """Return the function's event for one message with attributes of SQS."""
    records = event(body)["Records"]
    return {"Records": [{**each, "attributes": attributes} for each in records]}


def test_a_source_that_cannot_be_read_stops_no_other_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    lake.create_table("other", {"n": "long"})
    declare(lake, tmp_path, SILVER, "CREATE TABLE of_other SCHEDULE ON CHANGE AS SELECT count(*) AS c FROM other")
    append(lake, (2, "b", 5))
    features = {"readerFeatures": ["unheardOf"], "writerFeatures": ["unheardOf"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    lake.store.put(f"other/_delta_log/{1:020}.json", json.dumps(protocol).encode())
    lake = Lake(lake.store, lake.clock)
    why = r"of_other: a source cannot be read: .*unheardOf"
    with warm_lake.using(lake):
        with pytest.raises(AlluviaError, match=why):
            handler({}, Context("r"))
        assert waiting(queue) == [{"table": "silver"}]
        assert failed(handler(event(message_for("silver")), Context("r"))) == []
        with pytest.raises(AlluviaError, match=why):
            handler({"tables": ["main.of_other"]}, Context("r"))
        monkeypatch.delenv("ALLUVIA_TABLES_QUEUE_URL")
        with pytest.raises(AlluviaError, match=why):
            handler({}, Context("r"))
    assert lake["silver"].count() == 2
