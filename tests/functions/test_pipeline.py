"""The pipeline function: derived tables run when their sources change, by a queue or without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError, Invalid, TableNotFound
from alluvia.pipelines import derived_tables
from alluvia.pipelines.derived_tables import DerivedTables
from alluvia.pipelines.marks import note_failure, put_marks, read_failure
from alluvia.serverless import derived_runs, sqs_sender, warm_lake
from alluvia.serverless.rounds import MARGIN_MS
from alluvia.serverless.table_messages import message_for
from alluvia.store import CountingStore, MemoryStore
from functions.pipeline.handler import handler
from tests.functions.test_table_queue import event, failed, waiting
from tests.log_lines import Context, log_lines
from tests.samples import payload

SILVER = "CREATE TABLE silver SCHEDULE ON CHANGE AS SELECT id, who, n FROM events WHERE n >= 0"
GOLD = "CREATE TABLE gold SCHEDULE ON CHANGE AS SELECT who, sum(n) AS s FROM silver GROUP BY who"
BAD = "CREATE TABLE bad SCHEDULE ON CHANGE AS SELECT error('broken')::INT AS x FROM events WHERE n > 1"
MINUTE = 60
TABLES = ("events", "silver", "gold")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lake(clock: ManualClock) -> Iterator[Lake]:
    lake = Lake(MemoryStore("lake", clock), clock)
    lake.create_table("events", {"id": "long", "who": "string", "n": "long"}).append([{"id": 1, "who": "a", "n": 1}])
    with warm_lake.using(lake):
        yield lake


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    sqs_sender.sqs.cache_clear()
    with mock_aws():
        url = boto3.client("sqs").create_queue(QueueName="steps.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        monkeypatch.setenv("ALLUVIA_TABLES_QUEUE_URL", url)
        yield url
    sqs_sender.sqs.cache_clear()


def declare(lake: Lake, folder: Path, *texts: str) -> None:
    """Run declarations once, as a person does from files, which no function sees."""
    place = folder / "pipelines"
    place.mkdir(exist_ok=True)
    (place / "all.sql").write_text(";\n".join(texts))
    assert [each.error for each in lake.pipeline(place).run()] == [None] * len(texts)
    for file in place.iterdir():
        file.unlink()


def append(lake: Lake, *rows: tuple[int, str, int]) -> None:
    lake["events"].append([dict(zip(("id", "who", "n"), row, strict=True)) for row in rows])


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(f"FROM {name} ORDER BY ALL").to_pylist()]


def ran(answer: dict[str, Any]) -> dict[str, Any]:
    return {each["table"]: each.get("mode") for each in answer["tables"]}


def test_what_changed_flows_down_in_one_round(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, GOLD)
    lake.create_rollup("total", "SELECT sum(s) AS n FROM gold")
    append(lake, (2, "b", 5), (3, "a", -1))
    done = handler(payload("pipeline_schedule"), Context("r"))
    assert ran(done) == {"silver": "appended", "gold": "changed", "total": "folded"}
    assert (rows(lake, "gold"), rows(lake, "total")) == ([("a", 1), ("b", 5)], [(6,)])
    assert done["left"] == []
    assert handler({}, Context("r"))["tables"] == []


def test_a_schedule_and_its_absence(lake: Lake, tmp_path: Path, clock: ManualClock) -> None:
    declare(
        lake,
        tmp_path,
        "CREATE TABLE hourly SCHEDULE EVERY 1 HOUR AS SELECT id FROM events",
        "CREATE TABLE by_hand AS SELECT id FROM events",
    )
    append(lake, (2, "b", 5))
    clock.sleep(59 * MINUTE)
    assert ran(handler({}, Context("r"))) == {}
    clock.sleep(2 * MINUTE)
    assert ran(handler({}, Context("r"))) == {"hourly": "appended"}
    clock.sleep(61 * MINUTE)
    assert ran(handler({}, Context("r"))) == {}  # nothing is new
    assert ran(handler({"tables": ["by_hand"], "when_due": True}, Context("r"))) == {}
    assert failed(handler(event(message_for("by_hand")), Context("r"))) == []
    assert lake["by_hand"].count() == 1
    assert ran(handler({"tables": ["by_hand"]}, Context("r"))) == {"by_hand": "appended"}
    assert (lake["hourly"].count(), lake["by_hand"].count()) == (2, 2)


def test_a_named_source_runs_what_is_made_of_it(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, GOLD)
    other = lake.create_table("other", {"n": "long"})
    lake.create_rollup("others", "SELECT count(*) AS n FROM other")
    other.append([{"n": 1}])
    append(lake, (2, "b", 5))
    assert ran(handler({"tables": ["events"]}, Context("r"))) == {"silver": "appended", "gold": "changed"}
    assert rows(lake, "others") == [(0,)]
    with pytest.raises(TableNotFound, match="there is no table 'silber'"):
        handler({"tables": ["silber"]}, Context("r"))
    with pytest.raises(Invalid, match="when_due: expected true or false"):
        handler({"tables": ["silver"], "when_due": 1}, Context("r"))
    with pytest.raises(Invalid, match="tabels is not a field"):
        handler({"tabels": ["silver"]}, Context("r"))


def test_one_that_fails_stops_no_other_rests_and_recovers(lake: Lake, tmp_path: Path, clock: ManualClock) -> None:
    declare(lake, tmp_path, BAD, SILVER)
    append(lake, (2, "b", 5))
    with pytest.raises(AlluviaError, match=r"1 of 2 tables failed: bad: Invalid.*broken"):
        handler({}, Context("r"))
    assert lake["silver"].count() == 2
    failure = read_failure(lake.store, "bad")
    assert failure is not None
    assert (failure.tries, "broken" in failure.error) == (1, True)
    assert handler({}, Context("r"))["tables"] == []
    clock.sleep(3 * MINUTE)
    with pytest.raises(AlluviaError, match="bad"):
        handler({}, Context("r"))
    clock.sleep(3 * MINUTE)
    assert handler({}, Context("r"))["tables"] == []  # it rests for twice as long
    lake["events"].delete("n > 1")
    clock.sleep(2 * MINUTE)
    # An appended table does not reflect that the row is gone: a person tells it to begin again.
    (tmp_path / "pipelines" / "all.sql").write_text(BAD)
    pipeline = lake.pipeline(tmp_path / "pipelines")
    assert [row["error"] for row in pipeline.status()] == ["Invalid Input Error: broken"]
    (report,) = pipeline.run(full_refresh=True)
    assert report.error is None
    assert [row["error"] for row in pipeline.status()] == [None]
    assert DerivedTables(lake.catalog).failed_run("bad") is None
    append(lake, (3, "c", 0))
    assert ran(handler({}, Context("r"))) == {"bad": "appended", "silver": "appended"}
    assert read_failure(lake.store, "bad") is None


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


def test_time_that_runs_out_leaves_tables_to_the_next_round(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, "CREATE TABLE two SCHEDULE ON CHANGE AS SELECT id FROM events")
    append(lake, (2, "b", 5))
    done = handler({}, Context("r", MARGIN_MS))
    assert (len(done["tables"]), len(done["left"])) == (1, 1)


def test_a_run_beyond_the_function_is_refused(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(lake, tmp_path, SILVER)
    append(lake, (2, "b", 5))
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", 10)
    with pytest.raises(AlluviaError, match=r"silver: Unsupported: a run reads \d+ bytes, more than the 10 of a"):
        handler({}, Context("r"))
    assert lake["silver"].count() == 1


def test_a_small_change_of_large_sources_is_tried_until_it_takes_too_much(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    declare(
        lake, tmp_path, "CREATE TABLE totals SCHEDULE ON CHANGE AS SELECT who, avg(n) AS a FROM events GROUP BY who"
    )
    append(lake, (2, "a", 5))
    size = sum(file.size for file in lake["events"].files)
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", size - 1)
    assert ran(handler({}, Context("r"))) == {"totals": "changed"}
    append(lake, (3, "a", 6))
    clock.sleep(1)
    note_failure(lake.store, clock, "totals", "an expectation failed")  # which Spark would repeat
    clock.sleep(3 * MINUTE)
    assert ran(handler({}, Context("r"))) == {"totals": "changed"}
    append(lake, (4, "a", 7))
    with monkeypatch.context() as patch:
        patch.setattr(derived_runs, "seconds_left", lambda _: 1e-9)
        with pytest.raises(AlluviaError, match=r"totals: QueryTooCostly: .* took longer than"):
            handler({}, Context("r"))
    for _ in range(2):  # the refusal is no reason to try it again
        clock.sleep(10 * MINUTE)
        with pytest.raises(AlluviaError, match=r"totals: Unsupported: a run reads up to \d+ bytes"):
            handler({}, Context("r"))


def test_a_run_by_hand_ends_a_row_of_failures(lake: Lake, tmp_path: Path, clock: ManualClock) -> None:
    declare(lake, tmp_path, BAD)
    derived = DerivedTables(lake.catalog)
    table = derived.named("bad")
    assert table is not None
    for at_limit in (True, False):
        clock.sleep(MINUTE)
        derived.note_run(table, "it failed", at_limit=at_limit)
    key = "_alluvia/pipelines/failed/bad"
    record = json.loads(lake.store.get(key))
    lake.store.put(key, json.dumps({**record, "job": "as a newer version may write"}).encode())
    failure = DerivedTables(lake.catalog).failed_run("bad")
    assert failure is not None
    assert (failure.error, failure.tries, failure.at_limit) == ("it failed", 2, True)
    append(lake, (2, "b", 1))
    clock.sleep(MINUTE)
    declare(lake, tmp_path, BAD)
    append(lake, (3, "c", 2))
    clock.sleep(MINUTE)
    with pytest.raises(AlluviaError, match="broken"):
        handler({}, Context("r"))
    failure = read_failure(lake.store, "bad")
    assert failure is not None
    assert (failure.tries, failure.at_limit) == (1, False)


def test_tables_that_are_made_of_each_other_do_not_run_for_ever(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, GOLD, "CREATE TABLE below SCHEDULE ON CHANGE AS SELECT who FROM gold")
    again = "CREATE TABLE silver KIND FULL SCHEDULE ON CHANGE AS SELECT s AS id, who, s AS n FROM gold"
    (tmp_path / "pipelines" / "again.sql").write_text(again)
    lake.pipeline(tmp_path / "pipelines").run(full_refresh=True)
    with pytest.raises(AlluviaError, match="tables are made of each other, or of such tables: below, gold, silver"):
        handler({}, Context("r"))
    versions = [lake[name].version for name in ("silver", "gold", "below")]
    for name in ("silver", "events", "below"):  # such as one that was sent before they were declared so
        assert failed(handler(event(message_for(name)), Context("r"))) == ["0"]
    assert [lake[name].version for name in ("silver", "gold", "below")] == versions


def test_a_table_of_a_branch_runs_once_it_is_published(lake: Lake, tmp_path: Path) -> None:
    branch = lake.branch("fix")
    declare(branch, tmp_path, SILVER)
    assert handler({}, Context("r"))["tables"] == []
    branch.publish()
    append(lake, (2, "b", 5))
    handler({}, Context("r"))
    assert rows(lake, "silver") == [(1, "a", 1), (2, "b", 5)]


def test_a_dropped_table_and_a_quarantine(lake: Lake, tmp_path: Path) -> None:
    checked = (
        "CREATE TABLE checked (CONSTRAINT big EXPECT (n > 1) ON VIOLATION QUARANTINE) SCHEDULE ON CHANGE "
        "AS SELECT id, n FROM events"
    )
    declare(lake, tmp_path, checked, "CREATE TABLE few SCHEDULE ON CHANGE AS SELECT id FROM checked_quarantine", SILVER)
    lake.drop_table("silver")
    append(lake, (2, "b", 1))
    assert ran(handler({}, Context("r"))) == {"checked": "appended", "few": "appended"}
    assert rows(lake, "few") == [(1,), (2,)]
    (tmp_path / "pipelines" / "all.sql").write_text(checked)
    (row,) = lake.pipeline(tmp_path / "pipelines").status()
    assert (row["failed"], row["behind"]) == ({"big": 1}, {"events": 0})


def test_a_log_that_cannot_be_read_stops_no_other_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(lake, tmp_path, SILVER, "CREATE TABLE two SCHEDULE ON CHANGE AS SELECT id FROM events")
    append(lake, (2, "b", 5))
    real = derived_tables.derived_table

    def unreadable(snapshot: Any) -> Any:
        if snapshot.name == "silver":
            raise AlluviaError("damaged")
        return real(snapshot)

    monkeypatch.setattr(derived_tables, "derived_table", unreadable)
    with pytest.raises(AlluviaError, match="1 of 2 tables failed: silver: damaged"):
        handler({}, Context("r"))
    assert lake["two"].count() == 2


def test_the_samples(lake: Lake) -> None:
    lake.create_table("access_log", {"n": "long"})
    assert failed(handler(payload("pipeline_sqs"), Context("r"))) == []
    assert handler(payload("pipeline_tables"), Context("r")) == {"tables": [], "left": []}
