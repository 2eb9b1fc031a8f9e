"""What the docs describe for the stack, once each in the functions' own layers: see `lambda_runtime.py`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote
from urllib.request import Request, urlopen

import boto3
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.base import Delivery
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.events.sources.lake_sources import change_sources
from infra.specs import INGEST, JOBS, MERGE, QUERY, SQL, UPLOAD, VACUUM, Spec
from tests.access import grant, token
from tests.infra.lambda_runtime import Deployed, Json
from tests.s3server import CREDENTIALS, REGION
from tests.samples import payload
from tests.webhooks import event_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("layers")]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
RECORD: Json = payload("merge_sqs")["Records"][0]
CSV = b"id,amount\n" + b"".join(b"%d,%d\n" % (number, number * 3) for number in range(2000))


def body_of(answer: Json) -> Any:
    assert answer["statusCode"] < 300, answer
    return json.loads(answer["body"])


def get(path: str, **headers: str) -> Json:
    path, _, query = path.partition("?")
    return event_of(path, b"", headers, method="GET", query=query)


def client(deployed: Deployed, service: Any) -> Any:
    address = deployed.environment["AWS_ENDPOINT_URL"]
    return boto3.client(service, endpoint_url=address, region_name=REGION, **CREDENTIALS)


def pushed(secret: str, event_id: str) -> Json:
    """Return a request as GitHub sends it."""
    kind, of = KINDS["github"], Source.read("s", {"kind": "github", "table": "hooks", "secret": "env:S"})
    sample = kind.sample(event_id, 0)
    sent = Delivery(sample.headers, sample.body, "")
    return event_of("/v1/webhooks/s", sent.body, {**sent.headers, **kind.sign(of, sent, secret, 0)})


@pytest.mark.parametrize("place", ["env", "secretsmanager", "secretsmanager-key", "ssm"])
def test_a_webhook_whose_secret_aws_holds_is_stored_and_a_forged_one_refused(deployed: Deployed, place: str) -> None:
    name = f"/{deployed.lake.uri.split('/')[2]}/{place}"
    reference = {
        "env": "env:HOOK",
        "secretsmanager": f"secretsmanager:{name}",
        "secretsmanager-key": f"secretsmanager:{name}#hook",
        "ssm": f"ssm:{name}",
    }[place]
    if place == "ssm":
        client(deployed, "ssm").put_parameter(Name=name, Value="right", Type="SecureString")
    elif place != "env":
        value = "right" if place == "secretsmanager" else '{"hook": "right"}'
        client(deployed, "secretsmanager").create_secret(Name=name, SecretString=value)
    deployed.lake.create_events("hooks")
    source = Source.read("s", {"kind": "github", "table": "hooks", "secret": reference})
    change_sources(deployed.lake.store, lambda sources: sources.update(s=source))
    answers = deployed.run(INGEST, pushed("wrong", "forged"), pushed("right", "one"), HOOK="right")
    assert [answer["statusCode"] for answer in answers] == [401, 200], answers
    assert deployed.lake.table("hooks").count() == 1


class _Lambda(BaseHTTPRequestHandler):
    """Lambda's API, of which functions use one call: it keeps what is to be run."""

    invoked: list[tuple[str, str, Any]]

    def do_POST(self) -> None:
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.invoked.append((unquote(self.path), self.headers["X-Amz-Invocation-Type"], payload))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def invoking() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """The address of Lambda's API, and what was invoked there."""
    invoked: list[tuple[str, str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (_Lambda,), {"invoked": invoked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", invoked
    server.shutdown()
    server.server_close()


def test_a_query_is_sent_as_a_job_which_another_function_runs_and_its_result_fetched(deployed: Deployed) -> None:
    deployed.lake.create_table("t", {"x": "long"}).append([{"x": 2}, {"x": 1}])
    arn = "arn:aws:lambda:us-east-1:123456789012:function:jobs:live"
    settings = {"ALLUVIA_JOBS_FUNCTION": arn, "ALLUVIA_RESULT_CACHE": "on", "ALLUVIA_MAX_RESULT_BYTES": "5000000000"}
    ask = event_of("/q", b'{"query": "SELECT x FROM t ORDER BY x", "mode": "async"}')
    with invoking() as (address, invoked):
        (sent,) = deployed.run(QUERY, ask, AWS_ENDPOINT_URL_LAMBDA=address, **settings)
    assert sent["statusCode"] == 202, sent
    ((path, kind, payload),) = invoked
    assert (path, kind) == (f"/2015-03-31/functions/{arn}/invocations", "Event")
    assert [answer["state"] for answer in deployed.run(JOBS, payload, **settings)] == ["done"]
    place = sent["headers"]["Location"]
    (told,) = deployed.run(QUERY, get(place), **settings)
    (link,) = deployed.run(QUERY, get(body_of(told)["result"]), **settings)
    assert (body_of(told)["state"], body_of(told)["rows"]) == ("done", 2)
    with urlopen(link["headers"]["Location"], timeout=30) as found:
        assert [json.loads(line) for line in found] == [{"x": 1}, {"x": 2}]


def test_files_are_uploaded_whole_and_in_parts(deployed: Deployed) -> None:
    begin = event_of("/v1/upload/parted", query="parts=2&format=csv")
    with deployed.running(UPLOAD, ALLUVIA_CREATE_TABLES="true") as run:
        assert body_of(run.call(event_of("/v1/upload/whole", CSV, {"content-type": "text/csv"})))["rows"] == 2000
        begun = body_of(run.call(begin))
        for part, data in zip(begun["parts"], (CSV[:9000], CSV[9000:]), strict=True):
            sent = Request(part["url"], data, {"Content-Type": "application/octet-stream"}, method="PUT")
            with urlopen(sent, timeout=30) as answer:
                assert answer.status == 200
        assert body_of(run.call(event_of(begun["complete"])))["rows"] == 2000
    assert deployed.lake.table("whole").to_arrow().equals(deployed.lake.table("parted").to_arrow())


def test_tokens_say_who_may_post_and_what_a_query_shows(
    deployed: Deployed, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("keys")))
    deployed.lake.create_events("t")
    writes = token(deployed.lake, grant("append:t"))
    reads = token(deployed.lake, grant("read:t", where="event = 'seen'", hide="properties"))

    def sent(path: str, body: str, bearer: str) -> Json:
        event = event_of(path, body.encode(), {"authorization": f"Bearer {bearer}"} if bearer else {})
        event["requestContext"].pop("authorizer", None)
        return event

    posts = [sent("/v1/events/t", f'{{"event": "{event}"}}', bearer) for event, bearer in
             (("seen", writes), ("other", writes), ("seen", reads), ("seen", ""))]  # fmt: skip
    answers = deployed.run(INGEST, *posts, ALLUVIA_AUTH="tokens")
    assert [answer["statusCode"] for answer in answers] == [200, 200, 403, 401], answers
    ask = json.dumps({"query": "SELECT event FROM t"})
    (read, refused) = deployed.run(QUERY, sent("/q", ask, reads), sent("/q", ask, writes), ALLUVIA_AUTH="tokens")
    assert (read["body"].strip(), refused["statusCode"]) == ('{"event":"seen"}', 403)


def test_other_formats_are_read(deployed: Deployed) -> None:
    for table in ("t", "logs"):
        deployed.lake.create_events(table)
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value, record.time_unix_nano = "hello", 1_795_000_000_000_000_000
    cloud = {"specversion": "1.0", "id": "1", "source": "/s", "type": "made", "data": {"a": 1}}
    answers = deployed.run(
        INGEST,
        event_of("/v1/events/t", json.dumps(cloud).encode(), {"content-type": "application/cloudevents+json"}),
        event_of("/v1/events/t", b"event,n\nbought,1\n", {"content-type": "text/csv"}),
        event_of("/v1/logs", logs.SerializeToString(), {"content-type": "application/x-protobuf"}),
    )
    assert [answer["statusCode"] for answer in answers] == [200, 200, 200], answers
    assert sorted(deployed.lake.table("t").to_arrow()["event"].to_pylist()) == ["bought", "made"]
    assert deployed.lake.table("logs").count() == 1


def test_a_query_is_published_read_in_many_forms_and_cached(deployed: Deployed) -> None:
    deployed.lake.create_table("t", {"x": "long"}).append([{"x": 1}, {"x": 2}])
    body = json.dumps({"query": "SELECT x FROM t WHERE x >= $least ORDER BY x", "parameters": {"least": "long=0"}})
    publish = event_of("/v1/queries/top", body.encode(), method="PUT")
    forms = [get(f"/v1/queries/top.{form}?least=2") for form in ("json", "csv", "parquet", "ndjson")]
    told = (get("/v1/tables"), get("/openapi.json"))
    settings = {"ALLUVIA_ALLOW_PUBLISH": "true", "ALLUVIA_RESULT_CACHE": "on"}
    answers = deployed.run(QUERY, publish, *forms, *told, **settings)
    assert [answer["statusCode"] for answer in answers] == [201, 200, 200, 200, 200, 200, 200], answers
    assert json.loads(answers[1]["body"]) == [{"x": 2}]
    assert answers[2]["body"].split() == ["x", "2"]
    etag = answers[1]["headers"]["ETag"]
    (again,) = deployed.run(QUERY, get("/v1/queries/top.json?least=2", **{"if-none-match": etag}))
    assert again["statusCode"] == 304


def test_a_large_result_goes_to_the_lake(deployed: Deployed) -> None:
    deployed.lake.create_table("t", {"x": "long"}).append([{"x": number} for number in range(5000)])
    ask = event_of("/q", b'{"query": "SELECT x FROM t ORDER BY x"}', {"accept": "application/vnd.apache.parquet"})
    (link,) = deployed.run(QUERY, ask, ALLUVIA_RESULT_LIMIT_BYTES="1000", ALLUVIA_MAX_RESULT_BYTES="5000000000")
    assert link["statusCode"] == 303, link
    with urlopen(link["headers"]["Location"], timeout=30) as found:
        (deployed.folder / "result.parquet").write_bytes(found.read())
    assert pq.read_table(deployed.folder / "result.parquet")["x"].to_pylist() == [*range(5000)]


def test_sql_writes_change_rows_tags_and_tables(deployed: Deployed) -> None:
    merge = "MERGE INTO t USING (SELECT 2 AS x, 'c' AS y) s ON t.x = s.x WHEN MATCHED THEN UPDATE SET y = s.y"
    texts = (
        "CREATE TABLE t (x BIGINT, y VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TAG 'before' ON TABLE t",
        f"{merge}; SELECT y FROM t WHERE x = 2",
        "DELETE FROM t WHERE x = 1; SELECT count(*) AS n FROM t",
        "RESTORE TABLE t TO TAG 'before'; SELECT count(*) AS n FROM t",
    )
    sent = [event_of("/sql", json.dumps({"query": text}).encode()) for text in texts]
    answers = deployed.run(SQL, *sent, ALLUVIA_ALLOW_WRITES="true")
    assert [answer["statusCode"] for answer in answers] == [200] * 5, answers
    assert [answer["body"].strip() for answer in answers[2:]] == ['{"y":"c"}', '{"n":1}', '{"n":2}']


@pytest.mark.parametrize("spec", [MERGE, VACUUM], ids=["merge", "vacuum"])
def test_a_sweep_puts_each_table_into_the_queue_whose_messages_it_takes(deployed: Deployed, spec: Spec) -> None:
    for name in ("a", "b"):
        table = deployed.lake.create_events(name)
        for number in range(3):
            table.append([{"event_id": f"{number}", "ts": NOON, "received_at": NOON}])
    queues = client(deployed, "sqs")
    url = queues.create_queue(QueueName=f"{spec.folder}-{deployed.lake.uri.split('/')[2]}")["QueueUrl"]
    (swept,) = deployed.run(spec, payload(f"{spec.folder}_schedule"), ALLUVIA_TABLES_QUEUE_URL=url)
    messages = queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert {json.loads(message["Body"])["table"] for message in messages} == {"a", "b"}, swept
    records = [RECORD | {"messageId": m["MessageId"], "body": m["Body"]} for m in messages]
    (done,) = deployed.run(spec, {"Records": records}, ALLUVIA_TABLES_QUEUE_URL=url)
    assert done == {"batchItemFailures": []}
    if spec is MERGE:
        assert [len(deployed.lake.table(name).files) for name in ("a", "b")] == [1, 1]
