"""A file sent in parts, and the steps that send it."""

from __future__ import annotations

import base64
import json
from typing import Any

from alluvia.api.lake import Lake
from alluvia.events.ingest.values import Limits
from alluvia.serverless.http import Request
from functions.ingest.handler import respond
from functions.ingest.settings import IngestSettings
from tests.access import known
from tests.samples import payload

SETTINGS = IngestSettings(None, False, Limits(), authorization=known(None))
CSV = b"id,amount\n" + b"".join(b"%d,%d\n" % (number, number * 3) for number in range(2000))
Answer = tuple[int, dict[str, Any]]


def request(method: str, path: str, body: bytes = b"", query: str = "", **headers: str) -> Request:
    event = payload("ingest_api_gateway")
    event["requestContext"]["http"]["method"] = method
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["rawQueryString"], event["headers"] = query, headers
    event["body"], event["isBase64Encoded"] = base64.b64encode(body).decode(), True
    return Request.read(event, "")


def begin(lake: Lake, table: str, query: str, settings: IngestSettings = SETTINGS) -> Answer:
    answer = respond(request("POST", f"/v1/upload/{table}", query=query), settings, lake)
    return answer["statusCode"], json.loads(answer["body"])


def finish(lake: Lake, begun: dict[str, Any], settings: IngestSettings = SETTINGS, **told: object) -> Answer:
    body = json.dumps(told).encode() if told else b""
    answer = respond(request("POST", begun["complete"], body), settings, lake)
    return answer["statusCode"], json.loads(answer["body"])


def told(lake: Lake, begun: dict[str, Any], settings: IngestSettings = SETTINGS) -> Answer:
    answer = respond(request("GET", begun["complete"].removesuffix("/complete")), settings, lake)
    return answer["statusCode"], json.loads(answer["body"])


def cut(data: bytes, count: int) -> list[bytes]:
    size = -(-len(data) // count)
    return [data[at : at + size] for at in range(0, len(data), size)]


def send_parts(lake: Lake, begun: dict[str, Any], data: bytes) -> None:
    for part, piece in zip(begun["parts"], cut(data, len(begun["parts"])), strict=True):
        path, _, query = part["url"].partition("?")
        assert respond(request("PUT", path, piece, query), SETTINGS, lake)["statusCode"] == 200
