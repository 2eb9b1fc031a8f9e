"""Bodies of CSV, forms and CloudEvents, and bodies of any kind that are broken, through the ingest function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits, RawEvent, Reject
from alluvia.serverless import warm_lake
from alluvia.serverless.http import Request
from functions.ingest.events import take_body
from functions.ingest.settings import IngestSettings
from tests.formats import BINARY, CLOUD_EVENT, IDS, JSON, SAMPLES, damaged, odd_nodes
from tests.functions.bodies import post, request_of, rows
from tests.webhooks import NOW_US

TEXTS = pa.list_(pa.string())


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    return alluvia.connect(str(tmp_path))


def test_csv_fills_typed_columns(lake: alluvia.Lake) -> None:
    types = {"n": pa.int64(), "price": pa.float64(), "paid": pa.bool_(), "name": pa.string(), "tags": TEXTS}
    lake.create_events("t", pa.schema(list(types.items())))
    body = (
        b"event_id,ts,n,price,paid,name,tags,rest\r\n"
        b'a,2020-01-01T00:00:00Z,7,1.5,true,0042,"[""x"",""y""]","a, b"\r\n'
        b"b,1577836800,,,,,,\n"
        b"c,,seven,,,,,\n"
    )
    status, answer, _ = post("/v1/events/t", body, "text/csv; charset=utf-8")
    assert (status, json.loads(answer)["accepted"], json.loads(answer)["rejected"]) == (200, 2, 1)
    assert json.loads(answer)["errors"] == [{"position": 2, "reason": "n: expected a number (long), got a string"}]
    first, second = rows(lake)
    new_year = datetime(2020, 1, 1, tzinfo=UTC)
    assert [first[name] for name in ("ts", *types)] == [new_year, 7, 1.5, True, "0042", ["x", "y"]]
    assert first["properties"] == {"rest": "a, b"}
    assert [second[name] for name in ("ts", *types)] == [new_year, None, None, None, None, None]
    assert json.loads(post("/v1/events/t", body, "text/csv")[1])["duplicates"] == 2


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b'event_id,ts,n\n"","","1"\n', "text/csv"), (b"event_id=&ts=&n=1", "application/x-www-form-urlencoded")],
    ids=["csv", "form"],
)
def test_an_empty_id_and_an_empty_time_say_nothing(lake: alluvia.Lake, body: bytes, kind: str) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64())]))
    assert json.loads(post("/v1/events/t", body, kind)[1])["accepted"] == 1
    [row] = rows(lake)
    assert (bool(row["event_id"]), row["ts"] == row["received_at"], row["properties"]) == (True, True, {})
    assert row["n"] == 1


@pytest.mark.parametrize(("kind", "by"), [("text/csv", ","), ("text/csv", "|"), ("text/tab-separated-values", "\t")])
def test_an_empty_cell_within_quotes_is_the_empty_text(lake: alluvia.Lake, kind: str, by: str) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64()), ("name", pa.string())]))
    cells = [
        ("event_id", "n", "name", "rest", "more"),
        ("a", '""', '""', '""', '""'),
        ("b", "", '""', "", '""'),
        ("c", '""', "", '""', ""),
        ("d", "", "", f'"""{by}{by}"""', "é"),
        ('"e"', "1", '""""', '"x\ny"', '""'),
    ]
    body = "\n".join(map(by.join, cells)).encode()
    assert json.loads(post("/v1/events/t", body, kind)[1])["accepted"] == 5
    assert [(row["event_id"], row["n"], row["name"], row["properties"]) for row in rows(lake)] == [
        ("a", None, "", {"rest": "", "more": ""}),
        ("b", None, "", {"more": ""}),
        ("c", None, None, {"rest": ""}),
        ("d", None, None, {"rest": f'"{by}{by}"', "more": "é"}),
        ("e", 1, '"', {"rest": "x\ny", "more": ""}),
    ]


def test_csv_that_says_it_has_no_header_is_refused(lake: alluvia.Lake) -> None:
    lake.create_events("t")
    status, answer, _ = post("/v1/events/t", b"7,1\n8,2\n", "text/csv; charset=utf-8; header=absent")
    reason = "the first row must name the fields: header=absent is not supported"
    assert (status, json.loads(answer)["errors"]) == (400, [{"position": 0, "reason": reason}])
    assert post("/v1/events/t", b"sku,n\n8,2\n", "text/csv; header=present")[0] == 200


@pytest.mark.parametrize("body", [b"sku,priceA,1", b"sku,price", b"\xef\xbb\xbfsku,price\r\n\r\n", b'sku,"pr\nice"\n'])
def test_csv_without_rows_is_refused_and_kept(lake: alluvia.Lake, body: bytes) -> None:
    lake.create_events("t")
    status, answer, _ = post("/v1/events/t", body, "text/csv")
    assert (status, json.loads(answer)["accepted"]) == (400, 0)
    assert json.loads(answer)["errors"][0]["reason"] == (
        "the CSV has a header and no rows: send a row per line (curl -d strips line ends, --data-binary keeps them)"
    )
    assert lake.table("t/_rejects").scan().read_all()["raw"].to_pylist() == [body]


@pytest.mark.parametrize("content_type", ["text/csv", JSON, "application/x-ndjson"])
@pytest.mark.parametrize("body", [b"", b" \r\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_body_without_anything_is_empty_in_every_format(lake: alluvia.Lake, body: bytes, content_type: str) -> None:
    lake.create_events("t")
    status, answer, _ = post("/v1/events/t", body, content_type)
    reason = "the body is empty: send a JSON object, an array of them, or one per line"
    assert (status, json.loads(answer)) == (400, {"error": reason})


def test_rows_of_csv_may_end_in_carriage_returns_alone(lake: alluvia.Lake) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64()), ("note", pa.string())]))
    assert post("/v1/events/t", b'event_id,n,note\ra,1,"x\ry\nz"\r\rb,2,\r\nc,3,w', "text/csv")[0] == 200
    assert [(row["n"], row["note"]) for row in rows(lake)] == [(1, "x\ry\nz"), (2, None), (3, "w")]
    status, answer, _ = post("/v1/events/t", b'event_id,"no\rte"\nd,x\ry\n', "text/csv")
    assert (status, json.loads(answer)["errors"][0]["reason"]) == (
        400, "not valid CSV: a carriage return (\\r) stands outside quotes",
    )  # fmt: skip


def test_a_form_is_an_event_and_json_of_curl_stays_json(lake: alluvia.Lake) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64()), ("tag", TEXTS)]))
    form = "application/x-www-form-urlencoded"
    assert post("/v1/events/t", b"event_id=a&n=%20+7&x=%C3%A4&x=", form)[0] == 200
    assert post("/v1/events/t", b' {"event_id":"b","n":8}', form)[0] == 200
    assert post("/v1/events/t", b"nonsense", form)[0] == 400
    assert [(row["n"], row["properties"]) for row in rows(lake)] == [(7, {"x": ["ä", ""]}), (8, {})]


@pytest.mark.parametrize("mode", ["structured", "batch", "binary"])
def test_cloudevents_in_every_mode_make_the_same_row(lake: alluvia.Lake, mode: str) -> None:
    said = CLOUD_EVENT | {"time": "2020-01-01T00:00:00Z", "datacontenttype": "application/json"}
    body, kind, headers = {
        "structured": (said, "application/cloudevents+json; charset=utf-8", {}),
        "batch": ([said], "application/cloudevents-batch+json", {}),
        "binary": ({"total": 5}, "application/json", BINARY | {"ce-time": "2020-01-01T00:00:00Z"}),
    }[mode]
    for stored in (1, 0):
        status, answer, _ = post("/v1/events/t", json.dumps(body).encode(), kind, headers)
        assert (status, json.loads(answer)["stored"]) == (200, stored)
    [row] = rows(lake)
    assert (row["event_id"], row["source"], row["event"]) == ("A1", "/shop", "order.placed")
    assert row["ts"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert row["properties"] == {
        "specversion": "1.0", "type": "order.placed", "datacontenttype": "application/json", "data": {"total": 5},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b'{"a":1.10}', "application/json", {"data": {"a": 1.1}}),
        (b"[1]", "application/vnd.x+json", {"data": [1]}),
        ("ä".encode(), "text/plain", {"data": "ä"}),
        ("ä".encode("latin-1"), "text/plain; charset=iso-8859-1", {"data": "ä"}),
        (b"\xff", "text/plain", {"data_base64": "/w=="}),
        (b"\x00\x01", "application/octet-stream", {"data_base64": "AAE="}),
        (b"", "application/json", {}),
    ],
)
def test_the_data_of_a_binary_cloudevent(
    lake: alluvia.Lake, body: bytes, content_type: str, data: dict[str, object]
) -> None:
    headers = BINARY | {"ce-subject": '"Euro%20%E2%82%AC \\"x\\""', "ce-id": "%41"}
    assert post("/v1/events/t", body, content_type, headers)[0] == 200
    [row] = rows(lake)
    assert row["event_id"] == "A"
    said = {"specversion": "1.0", "type": "order.placed", "subject": 'Euro € "x"', "datacontenttype": content_type}
    assert row["properties"] == said | data


def test_broken_cloudevents_are_rejects(lake: alluvia.Lake) -> None:
    lake.create_events("t")
    for body, kind, headers, reason in (
        (
            b'{"id":"1","source":"/s","specversion":"1.0"}',
            "application/cloudevents+json",
            {},
            "type: a CloudEvent needs",
        ),
        (b"{", JSON, BINARY, "data: not valid JSON"),
        (b"<x/>", "application/cloudevents+xml", {}, "is not supported: send CloudEvents as JSON"),
    ):
        status, answer, _ = post("/v1/events/t", body, kind, headers)
        assert status == (415 if "is not supported" in reason else 400)
        assert reason in json.loads(answer)["errors"][0]["reason"]
    raws = [row["raw"] for row in lake.table("t/_rejects").scan().read_all().to_pylist()]
    assert b"<x/>" in raws
    assert any(b'"data_base64":"ew=="' in raw and b'"id":"A1"' in raw for raw in raws)


@pytest.mark.parametrize("body", [b"{", b"{}"])
@pytest.mark.parametrize("odd", [{"ce-specversion": "\ud800"}, {"ce-a": "\udfff"}, {"ce-\ud800": "a"}])
def test_half_a_character_in_a_header_is_a_question_mark(lake: alluvia.Lake, odd: dict[str, str], body: bytes) -> None:
    lake.create_events("t")
    assert post("/v1/events/t", body, JSON, BINARY | odd)[0] == (200 if body == b"{}" else 400)
    kept = lake.table("t" if body == b"{}" else "t/_rejects").to_arrow().to_pylist()
    assert "?" in str(kept[0]["properties"] if body == b"{}" else kept[0]["raw"])


def test_records_of_kafkas_rest_proxy_are_not_one_event(lake: alluvia.Lake) -> None:
    lake.create_events("t")
    body = b'{"records":[{"value":{"event":"a"}},{"value":{"event":"b"}}]}'
    status, answer, _ = post("/v1/events/t", body, "application/vnd.kafka.json.v2+json; charset=utf-8")
    assert (status, lake.table("t").count()) == (415, 0)
    assert b"send the value of each record as an event, in a JSON array" in answer


@pytest.mark.parametrize(
    ("path", "body", "content_type", "encoding", "reason"),
    [
        ("/v1/events/t", b"\x82\x01", "application/x-msgpack", "", "MessagePack is not supported: send JSON"),
        (
            "/v1/events/t",
            b'--x\r\nContent-Disposition: form-data; name="data"\r\n\r\n{}\r\n--x--',
            "multipart/form-data; boundary=x",
            "",
            "multipart/form-data is not supported here: send events as JSON, and files to POST /v1/upload/{table}",
        ),
        ("/v1/events/t", b"{}", JSON, "snappy", "Content-Encoding 'snappy' is not supported"),
        ("/v1/logs", b"{}", JSON, "snappy", "Content-Encoding 'snappy' is not supported"),
        ("/v1/logs", b"{}", "text/plain", "", "Content-Type: 'text/plain' is not supported: send application"),
        (
            "/v1/upload/t",
            b"a\n1\n",
            "text/csv",
            "snappy",
            "Content-Encoding 'snappy' is not supported",
        ),
    ],
)
def test_what_is_never_read_is_answered_so(
    lake: alluvia.Lake, path: str, body: bytes, content_type: str, encoding: str, reason: str
) -> None:
    for name in ("t", "logs"):
        lake.create_events(name)
    status, answer, _ = post(path, body, content_type, {"content-encoding": encoding})
    assert status == 415
    assert reason.encode() in answer
    if path == "/v1/events/t":
        assert lake.table("t/_rejects").scan().read_all()["raw"].to_pylist() == [body]
        assert post(path, b'{"n":1}', content_type)[0] == 200  # the body decides


@pytest.mark.parametrize(
    ("name", "body", "content_type", "headers"),
    [pytest.param(*each, id=name) for each, name in zip(SAMPLES, IDS, strict=True) if any(odd_nodes(each[1]))],
)
def test_no_odd_value_in_any_place_is_the_functions_fault(
    lake: alluvia.Lake, name: str, body: bytes, content_type: str, headers: Mapping[str, str]
) -> None:
    """Each body is read; those that become events go on to rows, all at once."""
    form = by_name(name)
    events: list[RawEvent] = []
    rejects: list[Reject] = []
    for odd in odd_nodes(body):
        sent = SentBody({"content-type": content_type, **headers}, odd, NOW_US)
        found = form.read(sent, Limits())
        form.key(sent, found)
        events += [event._replace(position=at) for at, event in enumerate(found.events, len(events))]
        rejects += found.rejects
    done = ingest_batch(lake.catalog, "t", events, rejects, arrival_us=NOW_US, create=True)
    assert done.accepted > 0
    assert done.accepted + done.rejected == len(events) + len(rejects)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_comes_is_never_the_functions_fault(lake: alluvia.Lake, data: st.DataObject) -> None:
    name, body, content_type, headers = data.draw(st.sampled_from(SAMPLES))
    text = data.draw(st.one_of(damaged(body), st.binary(max_size=40)))
    header = data.draw(st.sampled_from(["content-type", "content-encoding", "idempotency-key", "ce-id", "ce-time"]))
    odd = {header: data.draw(st.text(st.characters(codec="latin-1"), max_size=12))} if data.draw(st.booleans()) else {}
    request = Request.read(request_of("/v1/x", text, content_type, {**headers, **odd}), "")
    settings = IngestSettings.read({"ALLUVIA_CREATE_TABLES": "true"})
    answer = take_body(request, "t", name, settings, warm_lake.lake())
    assert answer["statusCode"] < 500
