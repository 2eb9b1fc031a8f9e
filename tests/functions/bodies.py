"""Bodies posted to the ingest function, and the rows that they become."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import alluvia
from functions.ingest.handler import handler
from tests.samples import payload


def request_of(path: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    event = payload("ingest_api_gateway") | {"rawPath": path, "isBase64Encoded": True}
    event["requestContext"]["http"]["path"] = path
    event["headers"] = {"content-type": content_type, **(headers or {})}
    return event | {"body": base64.b64encode(body).decode()}


def post(
    path: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    answer = handler(request_of(path, body, content_type, headers), None)
    text = answer["body"]
    return (
        answer["statusCode"],
        base64.b64decode(text) if answer["isBase64Encoded"] else text.encode(),
        answer["headers"],
    )


def rows(lake: alluvia.Lake, table: str = "t") -> list[dict[str, Any]]:
    found = lake.table(table).scan().read_all().to_pylist()
    for row in found:
        row["properties"] = json.loads(row["properties"]) if row["properties"] else {}
    return sorted(found, key=lambda row: str(row["event_id"]))
