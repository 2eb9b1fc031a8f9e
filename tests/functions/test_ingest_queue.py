"""The ingest function in queued mode: HTTP into SQS, and SQS into the lake, exactly once however it is delivered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pytest
from botocore.stub import Stubber
from moto import mock_aws

import alluvia
from alluvia.clock import ManualClock
from alluvia.commit.handle import TableHandle
from alluvia.errors import Invalid, Unavailable
from alluvia.events.ingest import pipeline
from alluvia.operations.append.ingest import ingest
from alluvia.serverless import sqs_sender, warm_lake
from functions.ingest.handler import handler
from tests import samples
from tests.samples import EVENTS, payload

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

REGION = "eu-central-1"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    sqs_sender.sqs.cache_clear()
    with mock_aws():
        url = boto3.client("sqs").create_queue(QueueName="events")["QueueUrl"]
        monkeypatch.setenv("ALLUVIA_MODE", "queued")
        monkeypatch.setenv("ALLUVIA_QUEUE_URL", url)
        yield url
    sqs_sender.sqs.cache_clear()


def post(body: str, table: str = "access_log", **headers: str) -> tuple[int, dict[str, Any]]:
    answer = handler(samples.post(body, table, **headers), None)
    return answer["statusCode"], json.loads(answer["body"])


def received(url: str) -> list[dict[str, Any]]:
    """Take all messages out of the queue, as records of an SQS event."""
    client, records = boto3.client("sqs"), []
    while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        records += [record(message["Body"], message["MessageId"]) for message in messages]
    return records


def record(body: str, message_id: str) -> dict[str, Any]:
    return dict(payload("ingest_sqs")["Records"][0]) | {"body": body, "messageId": message_id}


def deliver(records: list[dict[str, Any]]) -> list[str]:
    """Call the consumer; return the messages that it reports as failed."""
    answer = handler({"Records": records}, None)
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


def rows(lake: alluvia.Lake, table: str = "access_log") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).scan().read_all().sort_by("event_id").to_pylist()
    return found


def ids(lake: alluvia.Lake, table: str = "access_log") -> list[str]:
    return [row["event_id"] for row in rows(lake, table)]


def test_through_the_queue(lake: alluvia.Lake, queue: str) -> None:
    status, body = post(
        '{"event_id":"a","ts":5}\n{"event_id":\n{"x":1}\n{"event_id":"b","event":7}', Idempotency_Key="k"
    )
    assert (status, body["accepted"], body["rejected"]) == (202, 3, 1)
    assert [error["position"] for error in body["errors"]] == [1]
    assert ids(lake) == []
    assert [row["raw"] for row in rows(lake, "access_log/_rejects")] == [b'{"event_id":']
    records = received(queue)
    assert len(records) == 1
    for _ in range(3):
        assert deliver(records) == []
    assert ids(lake) == ["a", "k/2"]
    raws = {row["event_id"].partition("#")[0]: row["raw"] for row in rows(lake, "access_log/_rejects")}
    assert raws["b"] == b'{"event_id":"b","event":7}'
    assert len(rows(lake, "access_log/_rejects")) == 2


def test_generated_ids_and_arrival_are_fixed_before_the_queue(lake: alluvia.Lake, queue: str) -> None:
    post('[{"x":1},{"x":2}]')
    records = received(queue)
    assert deliver(records) == []
    before = rows(lake)
    warm_lake._lakes.clear()  # a cold function
    assert deliver(records) == []
    assert rows(lake) == before
    head = json.loads(records[0]["body"].split("\n")[0])
    assert [row["event_id"] for row in before] == sorted(head["ids"])
    assert {row["received_at"].timestamp() * 1_000_000 for row in before} == {head["arrival_us"]}


@pytest.mark.parametrize("records", [None, {}, [5], [{"s3": {"bucket": {}}}], [{"messageId": "m", "body": {}}]])
def test_records_that_are_no_messages(lake: alluvia.Lake, records: object) -> None:
    with pytest.raises(Invalid, match="Records: expected SQS messages"):
        handler({"Records": records}, None)


def test_a_real_batch_is_one_commit_per_table(lake: alluvia.Lake) -> None:
    event = payload("ingest_sqs")
    assert handler(event, None) == {"batchItemFailures": []}
    assert ids(lake) == [f"al-0000{at}" for at in range(5)]
    assert len(ids(lake, "github_webhooks")) == 3
    assert [lake.table(name).snapshot().version for name in ("access_log", "github_webhooks")] == [1, 1]
    assert handler(event, None) == {"batchItemFailures": []}
    assert [lake.table(name).snapshot().version for name in ("access_log", "github_webhooks")] == [1, 1]


def test_a_poison_message_fails_alone(lake: alluvia.Lake) -> None:
    records = [*payload("ingest_sqs")["Records"], record("no message of ours", "poison"), record("{}", "other")]
    assert deliver(records) == ["poison", "other"]
    assert (len(ids(lake)), len(ids(lake, "github_webhooks"))) == (5, 3)


def test_a_failing_table_takes_only_its_own_messages_along(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    records = payload("ingest_sqs")["Records"]
    real = ingest

    def fail(handle: TableHandle, *given: Any) -> Any:
        if handle.name == "access_log":
            raise Unavailable("the store went away")
        return real(handle, *given)

    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "ingest", fail)
        assert deliver(records) == [records[0]["messageId"], records[1]["messageId"]]
    assert (ids(lake), len(ids(lake, "github_webhooks"))) == ([], 3)
    assert deliver(records[:2]) == []
    assert len(ids(lake)) == 5


def test_a_message_of_bad_events_does_not_hold_up_its_neighbours(lake: alluvia.Lake, queue: str) -> None:
    lake.create_events("orders", pa.schema([("n", pa.int64())]), properties={"delta.constraints.positive": "n > 0"})
    bad = [{"event_id": f"bad{at}", "n": -at} for at in range(3000)]
    for events in (bad, [{"event_id": "good", "n": 1}]):
        assert post(json.dumps(events), table="orders")[0] == 202
    records = received(queue)
    assert len(records) == 2
    assert deliver(records) == []
    assert ids(lake, "orders") == ["good"]
    assert len(rows(lake, "orders/_rejects")) == 3000


def test_the_same_id_with_other_content_is_kept_as_a_reject(lake: alluvia.Lake, queue: str) -> None:
    for body in ('{"event_id":"a","n":1}', '{"event_id":"a","n":2}', '{ "n": 1, "event_id": "a" }'):
        assert post(body)[1]["accepted"] == 1
    records = received(queue)
    for batch in (records, records[::-1], records[1:]):
        assert deliver(batch) == []
    assert ids(lake) == ["a"]
    assert [row["raw"] for row in rows(lake, "access_log/_rejects")] == [b'{"event_id":"a","n":2}']


def test_rejects_alone_create_no_table(lake: alluvia.Lake, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    for body in ("[5]", '{"event":5}'):
        status, answer = post(body, table="fresh")
        assert (status, answer["accepted"], answer["rejected"]) == (400, 0, 1)
        assert answer["error"].startswith("nothing was kept: there is no table 'fresh'")
    assert (received(queue), "fresh" in lake.tables()) == ([], False)
    assert post('[{"event":5},{}]', table="fresh") == (202, {"accepted": 2, "rejected": 0, "errors": []})
    assert deliver(received(queue)) == []
    assert (len(rows(lake, "fresh")), len(rows(lake, "fresh/_rejects"))) == (1, 1)


def test_queued_events_that_no_table_can_keep_go_to_the_dead_letters(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    head = payload("ingest_sqs")["Records"][3]["body"].split("\n", 1)[0].replace("github_webhooks", "gone")
    assert deliver([record(f'{head}\n{{"event":5}}', "1")]) == ["1"]
    assert "gone" not in lake.tables()


def test_messages_for_a_table_that_is_gone_are_reported(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    head, line = payload("ingest_sqs")["Records"][0]["body"].split("\n", 1)
    gone = head.replace("access_log", "gone") + "\n" + line
    bad = head.replace("access_log", "../access_log") + "\n" + line
    assert deliver([record(gone, "1"), record(bad, "2")]) == ["1", "2"]
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    assert deliver([record(gone, "1"), record(bad, "2")]) == ["2"]
    assert ids(lake, "gone") == ["al-00000", "al-00001"]


def test_redelivery_in_other_batches_makes_no_second_row(lake: alluvia.Lake) -> None:
    records = payload("ingest_sqs")["Records"]
    for batch in (records[:1], records[:3], records[1:], records, records[::-1]):
        warm_lake._lakes.clear()  # a cold function
        assert deliver(batch) == []
    assert ids(lake) == [f"al-0000{at}" for at in range(5)]
    assert len(ids(lake, "github_webhooks")) == 3


def test_answers_of_the_front(lake: alluvia.Lake, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert post("[5]")[0] == 400
    assert post("[]") == (202, {"accepted": 0, "rejected": 0, "errors": []})
    assert post("")[0] == 400
    assert post("{}", table="unknown")[0] == 404
    assert post("{}", table="Bad")[0] == 400
    monkeypatch.setenv("ALLUVIA_BODY_LIMIT_BYTES", "10")
    assert post('{"a":"long enough"}')[0] == 413
    assert received(queue) == []
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    assert post("{}", table="unknown")[0] == 202
    assert "unknown" in lake.tables()


def test_a_queue_that_is_gone_is_a_503(lake: alluvia.Lake, queue: str) -> None:
    boto3.client("sqs").delete_queue(QueueUrl=queue)
    status, body = post('{"event_id":"a"}')
    assert status == 503
    assert "the queue did not take the messages" in body["error"]


def test_much_goes_in_messages_that_sqs_takes(lake: alluvia.Lake, queue: str) -> None:
    lines = gzip.decompress((EVENTS / "data" / "access_log.ndjson.gz").read_bytes()).decode()
    status, body = post(lines, Idempotency_Key="all")
    assert (status, body["accepted"]) == (202, 9_999)
    records = received(queue)
    assert len(records) == 4
    assert deliver(records) == []
    assert len(set(ids(lake))) == 9_999
    assert lake.table("access_log").snapshot().version == 1


def test_an_event_too_large_for_the_queue_is_rejected(
    lake: alluvia.Lake, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLUVIA_EVENT_LIMIT_BYTES", "2000000")
    status, body = post(json.dumps([{"event_id": "a", "x": "y" * 1_000_001}, {"event_id": "b"}]))
    assert (status, body["accepted"], body["rejected"]) == (202, 1, 1)
    assert [row["event_id"].partition("#")[0] for row in rows(lake, "access_log/_rejects")] == ["a"]
    assert deliver(received(queue)) == []
    assert ids(lake) == ["b"]


def failed(*numbers: int, fault: bool = False) -> list[dict[str, Any]]:
    return [{"Id": str(number), "SenderFault": fault, "Code": "InternalError"} for number in numbers]


def taken_entry(number: str) -> dict[str, Any]:
    return {"Id": number, "MessageId": f"m-{number}", "MD5OfMessageBody": "0" * 32}


def entries(*numbers: int) -> dict[str, Any]:
    return {"QueueUrl": "q", "Entries": [{"Id": str(at), "MessageBody": f"body-{at}"} for at in numbers]}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> SQSClient:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    return boto3.client("sqs", aws_access_key_id="test", aws_secret_access_key="test")


def send(client: SQSClient, answers: list[dict[str, Any]], bodies: list[bytes]) -> None:
    """Send to a queue that gives these answers, each to the entries that it names as expected."""
    with Stubber(client) as stubber:
        for answer in answers:
            refused = {each["Id"] for each in answer["failed"]}
            taken = [each["Id"] for each in answer["expects"]["Entries"] if each["Id"] not in refused]
            response = {"Successful": [taken_entry(each) for each in taken], "Failed": answer["failed"]}
            if answer.get("broken_off"):
                response = {"Successful": [], "Failed": []}
            stubber.add_response("send_message_batch", response, answer["expects"])
        try:
            sqs_sender.send(client, "q", bodies, ManualClock())
        finally:
            stubber.assert_no_pending_responses()


BODIES = [b"body-0", b"body-1", b"body-2"]


def test_what_sqs_refuses_of_a_batch_is_sent_again(client: SQSClient) -> None:
    answers: list[dict[str, Any]] = [
        {"expects": entries(0, 1, 2), "failed": failed(1, 2)},
        {"expects": entries(1, 2), "failed": failed(2)},
        {"expects": entries(2), "failed": []},
    ]
    send(client, answers, BODIES)


def test_what_sqs_refuses_for_good_is_unavailable(client: SQSClient) -> None:
    first: dict[str, Any] = {"expects": entries(0, 1, 2), "failed": failed(1)}
    again: dict[str, Any] = {"expects": entries(1), "failed": failed(1)}
    with pytest.raises(Unavailable, match="refused 1 messages: InternalError"):
        send(client, [first, again, again, again, again], BODIES)
    with pytest.raises(Unavailable, match="refused 1 messages: InternalError"):
        send(client, [{"expects": entries(0, 1, 2), "failed": failed(0, fault=True)}], BODIES)


def test_an_answer_that_names_no_messages_is_not_taken_for_success(client: SQSClient) -> None:
    broken_off: dict[str, Any] = {"expects": entries(0, 1, 2), "failed": [], "broken_off": True}
    send(client, [broken_off, {"expects": entries(0, 1, 2), "failed": []}], BODIES)
    with pytest.raises(Unavailable, match="refused 3 messages: its answer does not name them"):
        send(client, [broken_off] * 5, BODIES)


def test_more_than_ten_messages_take_more_calls(client: SQSClient) -> None:
    bodies = [f"body-{at % 10}".encode() for at in range(23)]
    send(client, [{"expects": entries(*range(size)), "failed": []} for size in (10, 10, 3)], bodies)
