"""What every format keeps: each event or reject, with all that was sent, whatever was sent."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from alluvia.errors import Invalid
from alluvia.events.formats import otlp_format
from alluvia.events.formats.body_format import NAMES, by_name, declared
from alluvia.events.formats.csv_text import name_of_two
from alluvia.events.ingest.values import Limits, Split
from alluvia.files import file_text
from alluvia.json_values.jsontext import encode
from tests.formats import IDS, JSON, PROTOBUF, SAMPLES, damaged, otlp_json, otlp_protobuf, read, sent

each_sample = pytest.mark.parametrize(("name", "body", "content_type", "headers"), SAMPLES, ids=IDS)


def test_every_format_has_samples_here() -> None:
    assert {name for name, *_ in SAMPLES} == set(NAMES)
    with pytest.raises(Invalid, match=r"format 'xml': choose one of json, cloudevents, csv"):
        by_name("xml")


@each_sample
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_becomes_events_and_rejects(
    name: str, body: bytes, content_type: str, headers: Mapping[str, str], data: st.DataObject
) -> None:
    text = data.draw(damaged(body))
    found = read(name, text, content_type, headers)
    positions = sorted([event.position for event in found.events] + [reject.position for reject in found.rejects])
    assert positions == list(range(len(positions)))
    for event in found.events:
        encode(event.value)
    if len(found.rejects) == 1 and not found.events and name not in ("csv", "firehose", "segment", "cloudevents"):
        assert found.rejects[0].raw.strip(b"\r\n\t ") in text


@each_sample
def test_a_sample_has_events_only(name: str, body: bytes, content_type: str, headers: Mapping[str, str]) -> None:
    found = read(name, body, content_type, headers)
    assert found.events
    assert found.rejects == []


TOKENS = [f"token{number}" for number in range(6)]
A, B, C, D, E, F = TOKENS
RECORDS = [
    base64.b64encode(text.encode()).decode() for text in (f'{{"{A}":"{B}"}}', f"{C}\n[{D}", f'{{"x":["{E}","{F}"]}}')
]
WHOLE: list[tuple[str, bytes, str, Mapping[str, str]]] = [
    ("json", f'{{"{A}":"{B}","properties":{{"{C}":1}}}}\n{D}\n["{E}","{F}"]'.encode(), "application/x-ndjson", {}),
    (
        "cloudevents",
        f'[{{"id":"{A}","{B}":"{C}"}},"{D}",["{E}"],"{F}"]'.encode(),
        "application/cloudevents-batch+json",
        {},
    ),
    (
        "cloudevents",
        f'{{"{D}":["{E}","{F}"]}}'.encode(),
        JSON,
        {"ce-specversion": "1.0", "ce-id": A, "ce-source": B, "ce-type": "t", "ce-x": C},
    ),
    ("csv", f'{A},{B}\n{C},"{D}\n"\n1,2,{E}\n"x"{F}\n'.encode(), "text/csv", {}),
    ("form", f"{A}={B}&{C}={D}&{C}={E}&{F}=".encode(), "application/x-www-form-urlencoded", {}),
    (
        "segment",
        f'{{"batch":[{{"type":"track","event":"{A}","{B}":1}},"{C}",{{"{D}":1}}],"context":{{"{E}":1}},"{F}":1}}'.encode(),
        JSON,
        {},
    ),
    ("vector", f'{{"{A}":"{B}"}}\n{C}\n{D} {E} {F}'.encode(), "application/x-ndjson", {}),
    ("fluentbit", f'[{{"date":"{A}","{B}":"{C}"}},"{D}",{{"date":1,"{E}":"{F}"}}]'.encode(), JSON, {}),
    ("fluentbit", f'{{"date":"{A}","{B}":"{C}"}}{{"{D}":"{E}"}}{F}'.encode(), JSON, {}),
    ("firehose", json.dumps({"records": [{"data": data} for data in RECORDS]}).encode(), JSON, {}),
    ("otlp", otlp_protobuf(*TOKENS), "application/x-protobuf", {}),
    ("otlp", json.dumps(otlp_json(*TOKENS)).encode(), JSON, {}),
]


@pytest.mark.parametrize(("name", "body", "content_type", "headers"), WHOLE, ids=[name for name, *_ in WHOLE])
def test_nothing_that_was_sent_is_lost(name: str, body: bytes, content_type: str, headers: Mapping[str, str]) -> None:
    found = read(name, body, content_type, headers)
    kept = b"".join([*(encode(event.value) for event in found.events), *(reject.raw for reject in found.rejects)])
    assert [token for token in TOKENS if token.encode() not in kept] == []


@each_sample
def test_limits_refuse_an_event_or_the_body(
    name: str, body: bytes, content_type: str, headers: Mapping[str, str]
) -> None:
    request = sent(body, content_type, headers)
    small = by_name(name).read(request, Limits(event_bytes=3))
    assert small.events == []
    assert all("more than the limit of 3" in reject.reason for reject in small.rejects)
    many = by_name(name).read(request, Limits(events=0))
    assert (many.events, many.too_large) == ([], True)
    assert [reject.raw.strip() for reject in many.rejects] == [body.strip()]


BATCH = "application/cloudevents-batch+json"


@pytest.mark.parametrize(
    ("name", "content_type", "start", "item", "end"),
    [
        ("cloudevents", BATCH, "[", "{}", "]"),
        ("cloudevents", BATCH, "[", "5", "]"),
        ("segment", JSON, '{"batch":[', "{}", "]}"),
        ("segment", JSON, '{"batch":[', "5", "]}"),
        ("firehose", JSON, '{"records":[', "{}", "]}"),
        ("firehose", JSON, '{"records":[', '{"data":""}', "]}"),
    ],
)
def test_a_list_that_is_too_long_is_not_looked_through(
    name: str, content_type: str, start: str, item: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[object] = []

    def count(value: object, *_: object) -> bytes:
        looked_at.append(value)
        return encode(value)

    for place in ("events", f"{name}_format"):
        monkeypatch.setattr(f"alluvia.events.formats.{place}.encode", count)
    monkeypatch.setattr("alluvia.events.formats.firehose_format.inflate", count)
    body = (start + ",".join([item] * 50) + end).encode()
    found = by_name(name).read(sent(body, content_type), Limits(events=10))
    assert (found.events, found.too_large, [reject.raw for reject in found.rejects]) == ([], True, [body])
    assert found.rejects[0].reason == "the body holds more than the limit of 10 events"
    assert looked_at == []


BROKEN = [b'{"x":"\\ud83d"}', b'{"x":NaN}', b'{"x":1,"x":2}', b'{"x":"\xff"}']
SCOPES = b'{"scope":{"name":"n"},"logRecords":[{"flags":1},%b]},{"log_records":[{"flags":2}]}'
REASONS = ["an unpaired surrogate", "NaN is not a JSON number", "the key 'x' occurs twice", "not valid UTF-8"]


@pytest.mark.parametrize(("broken", "reason"), list(zip(BROKEN, REASONS, strict=True)))
@pytest.mark.parametrize("name", ["segment", "cloudevents", "firehose", "otlp"])
def test_an_element_that_is_not_valid_takes_no_others_along(name: str, broken: bytes, reason: str) -> None:
    body, content_type = {
        "segment": (b'{"context":{"a":1},"batch":[{"type":"page"}, %b ,{"type":"alias"}],"sentAt":null}', JSON),
        "cloudevents": (
            b'[{"specversion":"1.0","id":"1","source":"s","type":"t"},%b,{"specversion":"1","id":"2","source":"s","type":"t"}]',
            BATCH,
        ),
        "firehose": (b'{"records":[{"data":"e30="},%b,{"data":"e30="}]}', JSON),
        "otlp": (b'{"resourceLogs":[{"resource":{},"scopeLogs":[' + SCOPES + b"]}]}", JSON),
    }[name]
    found = read(name, body % broken, content_type)
    assert [event.position for event in found.events] == [0, 2]
    [reject] = found.rejects
    assert (reject.position, reason in reject.reason) == (1, True), reject
    if name == "otlp":
        assert (
            reject.raw
            == (b'{"resourceLogs":[{"resource":{},"scopeLogs":[{"scope":{"name":"n"},"logRecords":[%b]}]}]}') % broken
        )
        assert [event.value.get("scope") for event in found.events] == [{"name": "n"}, None]
    else:
        assert reject.raw == broken
    if name == "segment":
        assert [event.value["context"] for event in found.events] == [{"a": 1}] * 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"batch":[{"type":"page"}',
        b'{"batch":[{"type":"page"}],"x":NaN}',
        b'{"batch":[{"type":"page"}],"\\ud800":1}',
        b'{"batch":[{"type":"page"}],"batch":[]}',
        b'{"batch":NaN}',
        b"[NaN]",
    ],
)
def test_what_is_broken_outside_of_the_list_refuses_all_of_it(body: bytes) -> None:
    found = read("segment", body)
    assert (found.events, [reject.raw for reject in found.rejects]) == ([], [body])


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (b'{"traceId":"xyz"}', "traceId: not hexadecimal"),
        (b'{"timeUnixNano":"x"}', "timeUnixNano"),
        (b'{"body":{"intValue":{}}}', "intValue"),
        (b"5", "logRecords"),
        (b"null", "null"),
    ],
)
def test_a_log_record_with_a_bad_value_takes_no_others_along(odd: bytes, reason: str) -> None:
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%b,{"flags":1}]},7]},{"scopeLogs":{"logRecords":[]}}]}' % odd
    found = read("otlp", body)
    assert ([event.value for event in found.events], [event.position for event in found.events]) == (
        [{"flags": 1}],
        [1],
    )
    assert [reject.position for reject in found.rejects] == [0, 2, 3]
    assert [reason in found.rejects[0].reason, odd in found.rejects[0].raw] == [True, True], found.rejects
    assert found.rejects[1].raw == b'{"resourceLogs":[{"scopeLogs":[7]}]}'
    assert found.rejects[2].raw == b'{"resourceLogs":[{"scopeLogs":{"logRecords":[]}}]}'


@pytest.mark.parametrize(
    "request_of", [{"resourceLogs": [{}] * 50}, {"resourceLogs": [{"scopeLogs": [{}] * 50}]}], ids=["resource", "scope"]
)
@pytest.mark.parametrize("in_json", [True, False])
def test_resources_and_scopes_count_as_events_do(request_of: dict[str, object], in_json: bool) -> None:
    packed = ParseDict(request_of, ExportLogsServiceRequest()).SerializeToString()
    body, kind = (json.dumps(request_of).encode(), JSON) if in_json else (packed, PROTOBUF)
    assert by_name("otlp").read(sent(body, kind), Limits(events=51)) == Split([], [])
    found = by_name("otlp").read(sent(body, kind), Limits(events=49))
    assert (found.too_large, found.rejects[0].raw) == (True, body)
    assert found.rejects[0].reason == "the body holds more than the limit of 49 events"


def test_records_that_are_told_apart_count_once_each() -> None:
    records = b",".join([b'{"flags":1}'] * 9 + [b'{"flags":NaN}'])
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%b]}]}]}' % records
    found = by_name("otlp").read(sent(body, JSON), Limits(events=10))
    assert (len(found.events), len(found.rejects), found.too_large) == (9, 1, False)


class Counted(str):
    """A text that counts how often it was compared with another."""

    __slots__ = ()
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.times += 1
        return str.__eq__(self, other) if isinstance(other, str) else NotImplemented


def test_the_names_of_a_header_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "times", 0)
    names = [*(Counted(f"column{number}") for number in range(500)), Counted("column499")]
    assert name_of_two(names) == "column499"
    assert Counted.times < 3 * len(names)


def test_what_follows_a_member_of_gzip_is_not_copied_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counting(window_bits: int) -> SimpleNamespace:
        inflater = zlib.decompressobj(window_bits)
        found = SimpleNamespace(eof=False)

        def decompress(data: bytes, bytes_max: int) -> bytes:
            sizes.append(len(data))
            text = inflater.decompress(data, bytes_max)
            found.eof, found.unused_data = inflater.eof, inflater.unused_data
            found.unconsumed_tail = inflater.unconsumed_tail
            return text

        found.decompress = decompress
        return found

    monkeypatch.setattr(file_text, "zlib", SimpleNamespace(decompressobj=counting, error=zlib.error))
    members = gzip.compress(b"{}\n") * 20_000
    assert b"".join(file_text.text_pieces([members])) == b"{}\n" * 20_000
    assert sum(sizes) < len(members) * 2000  # the members of 64 kB, not of all


def test_repeated_keys_of_attributes_are_numbered_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Pair:
        value = AnyValue(bool_value=True)

        def __init__(self, key: str) -> None:
            self.key = key

    class Counting(Counter[str]):
        def __setitem__(self, key: str, times: int) -> None:
            made.append(key)
            super().__setitem__(key, times)

    monkeypatch.setattr(otlp_format, "Counter", Counting)
    named = otlp_format._object([Pair(key) for key in ("a#3", *["a"] * 200, "b", "a#2")])  # type: ignore[misc]
    assert list(named)[:5] == ["a#3", "a", "a#2", "a#4", "a#5"]
    assert list(named)[-2:] == ["b", "a#2#2"]
    assert len(made) < 210


@pytest.mark.parametrize("calls", ['{"type":"track","event":"x"}', '{"type":"odd"}'])
def test_what_a_batch_says_of_all_its_calls_takes_no_more_than_a_few_bodies(calls: str) -> None:
    text = f'{{"context":{{"a":"{"x" * 1000}"}},"batch":[{",".join([calls] * 500)}]}}'
    found = by_name("segment").read(sent(text.encode(), JSON), Limits(inflated_bytes=20_000))
    assert (found.events, found.too_large, len(found.rejects)) == ([], True, 1)
    assert found.rejects[0].reason == "the body holds more than the limit of 80000 bytes of events"


@pytest.mark.parametrize(
    ("content_type", "headers", "name"),
    [
        ("", {}, "json"),
        ("application/json", {}, "json"),
        ("text/plain", {}, "json"),
        ("application/json", {"ce-specversion": "1.0"}, "cloudevents"),
        ("application/cloudevents+json", {}, "cloudevents"),
        ("text/csv", {}, "csv"),
        ("text/tab-separated-values", {}, "csv"),
        ("application/x-www-form-urlencoded", {}, "form"),
    ],
)
def test_what_headers_declare(content_type: str, headers: Mapping[str, str], name: str) -> None:
    assert declared(content_type, headers) == name


@pytest.mark.parametrize("lines", [3, 600])
@pytest.mark.parametrize(
    "odd",
    [
        {"timestamp": "2026-11-20T12:00:00Z", "host": "a"},
        {"host": "a"},
        {"timestamp": None, "n": 1},
        {"timestamp": "soon", "n": 1},
        {"timestamp": "2026-11-20 12:00", "n": 1},
        {"timestamp": "soon", "time": "2026-11-20T12:00:00Z"},
        {"timestamp": "soon", "n": 0.5},
        {"timestamp": "2026-11-20T12:00:00Z", "n": 0.5},
    ],
    ids=str,
)
def test_a_batch_is_known_by_its_bytes_if_each_event_has_a_time(lines: int, odd: dict[str, object]) -> None:
    events: list[dict[str, object]] = [{"timestamp": f"2026-11-20T12:00:{n % 60:02}Z", "n": n} for n in range(lines)]
    events[1] = odd
    body = b"\n".join(json.dumps(event, separators=(",", ":")).encode() for event in events)
    form, request = by_name("vector"), sent(body, "application/x-ndjson", {})
    has_time = "2026" in str(odd)
    assert (form.key(request, form.read(request, Limits())) is not None) == has_time
