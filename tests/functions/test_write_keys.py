"""/v1/track and its like: which source a write key is of, whatever is wrong with the others."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, Unavailable
from alluvia.events.formats.events import parsed
from alluvia.events.formats.segment_format import KEYED_BODY_BYTES_MAX
from alluvia.events.sources.definition import KEY
from alluvia.events.sources.kinds.generic import basic
from alluvia.serverless import secrets, warm_lake
from functions.ingest.handler import handler
from tests.webhooks import NOW_US, Answer, event_of

GOOD = '[good]\nkind = "segment"\ntable = "t"\nsecret = "env:GOOD"\n'
CALL = {"type": "track", "event": "x", "messageId": "1"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def lake(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[alluvia.Lake]:
    monkeypatch.setenv("GOOD", "right")
    with warm_lake.using(alluvia.connect(str(tmp_path), clock=clock)) as lake:
        yield lake


def define(lake: alluvia.Lake, text: str) -> None:
    lake.store.put(KEY, text.encode())


def track(key: str | None = "right", headers: dict[str, str] | None = None, body: bytes | None = None) -> Answer:
    proof = {} if key is None else basic(key)
    sent = json.dumps(CALL).encode() if body is None else body
    answer = handler(event_of("/v1/track", sent, {**proof, **(headers or {})}), None)
    return Answer(answer["statusCode"], answer["headers"], answer["body"])


@pytest.mark.parametrize(
    "broken", ['[bad]\nkind = "segment"\ntable = "t"\nsecret = "env:BAD"\norgins = ["*"]\n', "[bad]\nkind = 5\n"]
)
def test_a_key_of_no_source_may_be_that_of_one_at_fault(lake: alluvia.Lake, broken: str) -> None:
    define(lake, broken + GOOD)
    assert [track("right").status, track("other").status, track(None).status] == [200, 500, 401]


def test_no_key_is_wrong_while_the_sources_cannot_be_read(lake: alluvia.Lake) -> None:
    define(lake, "not TOML")
    assert (track().status, track(None).status) == (500, 401)


def test_a_body_is_parsed_once_for_its_key_however_many_sources_there_are(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(lake, "".join(GOOD.replace("good", f"a{n}").replace("GOOD", f"K{n}") for n in range(5)) + GOOD)
    for n in range(5):
        monkeypatch.setenv(f"K{n}", f"key {n}")
    bodies: list[bytes] = []

    def count(body: bytes) -> object:
        bodies.append(body)
        return parsed(body)

    monkeypatch.setattr("alluvia.events.formats.segment_format.parsed", count)
    forged = json.dumps({**CALL, "writeKey": "forged"}).encode()
    assert (track(None, body=forged).status, len([body for body in bodies if body])) == (401, 1)


KEYED = {**CALL, "writeKey": "right"}
LONG = json.dumps({**KEYED, "more": "x" * KEYED_BODY_BYTES_MAX}).encode()


@pytest.mark.parametrize(
    ("sources", "body"),
    [
        ("", json.dumps(KEYED).encode()),
        ('[other]\nkind = "open"\ntable = "t"\n', json.dumps(KEYED).encode()),
        (GOOD, json.dumps({**CALL, "writekey": "right"}).encode()),
        (GOOD, LONG),
        (GOOD, gzip.compress(LONG)),
    ],
    ids=["no source", "none of Segment", "another field", "too long", "too long once inflated"],
)
def test_no_body_is_parsed_for_a_key_that_cannot_be_in_it(
    lake: alluvia.Lake, sources: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(lake, sources)
    monkeypatch.setattr("alluvia.events.formats.segment_format.parsed", lambda body: pytest.fail("parsed a body"))
    answer = track(None, body=body)
    assert (answer.status, answer.json["success"]) == (401, False)


@pytest.mark.parametrize("value", ["NaN", '"\\ud83d"'])
def test_a_key_proves_what_is_no_json_so_that_it_is_kept(lake: alluvia.Lake, value: str) -> None:
    define(lake, GOOD)
    lake.create_events("t")
    body = f'{{"type":"track","event":{value},"writeKey":"right"}}'.encode()
    assert (track(None, body=body).status, track(None, body=body.replace(b"right", b"wrong")).status) == (400, 401)
    assert lake.table("t/_rejects").to_arrow()["raw"].to_pylist() == [body]


def test_a_body_that_inflates_to_much_is_taken_with_its_key_in_a_header(lake: alluvia.Lake) -> None:
    define(lake, GOOD)
    lake.create_events("t")
    calls = [{**CALL, "messageId": str(number), "more": "x" * 1000} for number in range(1100)]
    body = gzip.compress(json.dumps({"batch": calls}).encode())
    assert (track(body=body).status, len(lake["t"].to_arrow())) == (200, 1100)


@pytest.mark.parametrize("squeeze", [bytes, gzip.compress])
def test_the_key_is_in_a_compressed_body_too(lake: alluvia.Lake, squeeze: Callable[[bytes], bytes]) -> None:
    define(lake, GOOD)
    headers = {} if squeeze is bytes else {"content-encoding": "gzip"}
    sent = {key: squeeze(json.dumps({**CALL, "writeKey": key}).encode()) for key in ("right", "wrong")}
    assert track(None, headers, sent["right"]).status == 200
    assert track(None, headers, sent["wrong"]).status == 401


@pytest.mark.parametrize(("error", "status", "asked"), [(Invalid("x"), 500, 2), (Unavailable("x"), 503, 16)])
def test_a_secret_that_cannot_be_read_stands_in_no_other_sources_way_and_is_asked_for_seldom(
    error: Exception, status: int, asked: int, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(lake, GOOD.replace("good", "a").replace("env:GOOD", "ssm:/a") + GOOD)
    questions: list[str] = []

    def refuse(name: str) -> str:
        questions.append(name)
        raise error

    monkeypatch.setitem(secrets._READERS, "ssm", refuse)
    for _ in range(31):
        assert [track("right").status for _ in range(3)] == [200] * 3
        assert track("other").status == status
        clock.advance(1)
    assert len(questions) == asked


def test_who_waits_for_one_secret_keeps_nobody_from_another(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOD", "right")
    asked, answered = threading.Event(), threading.Event()

    def slow(name: str) -> str:
        asked.set()
        assert answered.wait(60)
        return name

    monkeypatch.setitem(secrets._READERS, "ssm", slow)
    known = secrets.Secrets(clock)
    waiting = threading.Thread(target=known.get, args=("ssm:/a",))
    waiting.start()
    try:
        assert asked.wait(60)
        assert known.get("env:GOOD") == "right"
        assert waiting.is_alive()
    finally:
        answered.set()
        waiting.join(60)
