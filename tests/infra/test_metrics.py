"""The metrics that alarms stand on: what the functions really log, through the filters that are deployed."""

from __future__ import annotations

import json
from typing import Any

import pytest

import alluvia
from alluvia.errors import Corrupt, Unavailable
from alluvia.events.ingest import pipeline
from alluvia.serverless import table_queue, warm_lake
from functions.query import answering
from tests.infra.metric_filters import Datapoint, datapoints
from tests.infra.policies import resources_of, the_id
from tests.log_lines import HANDLERS, Context, log_lines
from tests.samples import payload, post

Template = dict[str, Any]
INGEST = (("service", "ingest"),)


def metrics_of(template: Template, name: str, event: dict[str, Any], remaining_ms: int = 900_000) -> list[Datapoint]:
    """Call the handler of a deployed function, and return what its log lines count."""
    folder = "ingest" if name == "Commit" else name.lower()
    with log_lines() as lines:
        HANDLERS[folder].handler(event, Context("r", remaining_ms))
    return datapoints(template, the_id(template, "AWS::Logs::LogGroup", f"Functions{name}Log"), lines.text.splitlines())


def unavailable(*args: Any, **options: Any) -> Any:
    raise Unavailable("the store went away")


def test_events_and_rejects_over_http(template: Template, lake: alluvia.Lake) -> None:
    body = '{"event_id":"a"}\n{"event_id":"b"}\n{"event":\n{"event_id":"c","event":7}\n{"event_id":"d"}'
    assert metrics_of(template, "Ingest", post(body)) == [("Events", (), 3.0), ("Rejects", (), 2.0)]
    assert metrics_of(template, "Ingest", post('{"event_id":"e"}')) == [("Events", (), 1.0), ("Rejects", (), 0.0)]
    assert metrics_of(template, "Ingest", post("nothing")) == [("Events", (), 0.0), ("Rejects", (), 1.0)]


def test_rejects_behind_the_queue_count_and_its_events_do_not_count_again(
    template: Template, lake: alluvia.Lake
) -> None:
    record = payload("ingest_sqs")["Records"][0]
    head, first, *rest = record["body"].split("\n")
    broken = json.dumps({**json.loads(first), "event": 7})
    event = {"Records": [record | {"body": "\n".join([head, broken, *rest])}]}
    assert metrics_of(template, "Commit", event) == [("Rejects", (), 1.0)]


def test_messages_that_will_come_again(template: Template, lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    event = payload("ingest_sqs")
    assert [p for p in metrics_of(template, "Commit", event) if p[0] == "PartialBatchFailures"] == []
    records = [*event["Records"], event["Records"][0] | {"body": "not ours", "messageId": "poison"}]
    found = metrics_of(template, "Commit", {"Records": records})
    assert [point for point in found if point[0] == "PartialBatchFailures"] == [("PartialBatchFailures", INGEST, 1.0)]
    monkeypatch.setattr(pipeline, "ingest", unavailable)
    found = metrics_of(template, "Commit", {"Records": records})
    assert found == [("PartialBatchFailures", INGEST, float(len(records)))]


def test_requests_that_ingest_answers_with_a_503(
    template: Template, lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "ingest", unavailable)
    found = metrics_of(template, "Ingest", post('{"event_id":"a"}'))
    assert found == [("HandledFailures", (("service", "ingest"),), 1.0)]


@pytest.mark.parametrize("error", [Unavailable("away"), Corrupt("damaged")])
def test_queries_that_are_answered_with_500_or_more(
    template: Template, lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(answering, "run_rendered", fail)
    found = metrics_of(template, "Query", {"query": "SELECT 1"})
    assert found == [("HandledFailures", (("service", "query"),), 1.0)]


@pytest.mark.parametrize("query", ["SELECT 1", "SELEC 1", "SELECT * FROM nowhere"])
def test_a_query_that_is_answered_or_refused_counts_nowhere(template: Template, lake: alluvia.Lake, query: str) -> None:
    assert metrics_of(template, "Query", {"query": query}) == []


def test_merge_counts_commits_since_the_checkpoint(template: Template, lake: alluvia.Lake) -> None:
    for number in range(4):
        HANDLERS["ingest"].handler(post(json.dumps({"event_id": f"e{number}"})), Context("r"))
    one = {"tables": ["access_log"]}
    # Its creation, four commits and the merge, without a checkpoint.
    assert metrics_of(template, "Merge", one) == [("CommitsSinceCheckpoint", (), 6.0)]
    lake.table("access_log").checkpoint()
    warm_lake._lakes.clear()  # a cold function
    assert metrics_of(template, "Merge", one) == [("CommitsSinceCheckpoint", (), 0.0)]
    HANDLERS["ingest"].handler(post('{"event_id":"later"}'), Context("r"))
    # One commit. The merge after its notification leaves the file for later.
    (_, notification, *_) = payload("merge_sqs")["Records"]
    assert metrics_of(template, "Merge", {"Records": [notification]}) == [("CommitsSinceCheckpoint", (), 1.0)]


@pytest.mark.parametrize("name", ["Merge", "Vacuum"])
def test_messages_about_tables_that_will_come_again(template: Template, lake: alluvia.Lake, name: str) -> None:
    records = payload(f"{name.lower()}_sqs")["Records"]
    service = (("service", name.lower()),)

    def failures(sent: list[dict[str, Any]]) -> list[Datapoint]:
        return [each for each in metrics_of(template, name, {"Records": sent}) if each[0] == "PartialBatchFailures"]

    assert failures(records) == []
    assert failures([*records, records[0] | {"body": "poison"}]) == [("PartialBatchFailures", service, 1.0)]


@pytest.mark.parametrize("name", ["Merge", "Vacuum"])
def test_a_sweep_counts(template: Template, lake: alluvia.Lake, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    event = payload(f"{name.lower()}_schedule")
    sent: list[bytes] = []
    monkeypatch.setenv("ALLUVIA_TABLES_QUEUE_URL", "https://queue")
    monkeypatch.setattr(table_queue, "sqs", lambda: None)
    monkeypatch.setattr(table_queue, "send", lambda client, url, messages, clock: sent.extend(messages))
    assert metrics_of(template, name, event) == [("Sweeps", (("service", name.lower()),), 1.0)]
    assert len(sent) == 2


def test_every_metric_of_ours_has_an_alarm_and_every_alarm_its_metric(template: Template) -> None:
    changes = [each["MetricTransformations"][0] for each in resources_of(template, "AWS::Logs::MetricFilter").values()]
    assert {change["MetricNamespace"] for change in changes} == {"Alluvia"}
    emitted = {(change["MetricName"], bool(change.get("Dimensions"))) for change in changes}
    watched = set()
    for alarm in resources_of(template, "AWS::CloudWatch::Alarm").values():
        stats = [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", []) if "MetricStat" in each]
        for metric in (*stats, alarm):
            if metric.get("Namespace") == "Alluvia":
                watched.add((metric["MetricName"], bool(metric.get("Dimensions"))))
    assert watched == emitted


def test_the_functions_log_at_the_level_that_the_metrics_need(template: Template) -> None:
    for function in resources_of(template, "AWS::Lambda::Function").values():
        assert function["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"] == "INFO"
