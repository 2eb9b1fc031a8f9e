"""Files sent to a table, and what is stored of them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from alluvia.events.ingest.values import Limits
from alluvia.serverless.http import Request
from functions.ingest.handler import respond
from functions.ingest.settings import IngestSettings
from tests.access import known
from tests.samples import payload

SETTINGS = IngestSettings(None, False, Limits(), authorization=known(None))
FORM = "multipart/form-data; boundary=x"
CSV = b"sku,price,stock\n007,9.90,12\n008,,\n"


def send(
    lake: alluvia.Lake,
    table: str,
    body: bytes,
    query: str = "",
    settings: IngestSettings = SETTINGS,
    **headers: str,
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    event = payload("ingest_api_gateway")
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/v1/upload/{table}"
    event["rawQueryString"] = query
    event["headers"] = {name.replace("_", "-"): value for name, value in headers.items()}
    event["body"], event["isBase64Encoded"] = base64.b64encode(body).decode(), True
    answer = respond(Request.read(event, ""), settings, lake)
    return answer["statusCode"], json.loads(answer["body"]), answer["headers"]


def rows(lake: alluvia.Lake, table: str) -> list[dict[str, Any]]:
    return list(lake.table(table).to_arrow().to_pylist())


def refused(answer: tuple[int, dict[str, Any], Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]


def form(*parts: tuple[str, bytes]) -> bytes:
    lines = [
        b"--x\r\nContent-Disposition: form-data; name=" + name.encode() + b"\r\n\r\n" + data + b"\r\n"
        for name, data in parts
    ]
    return b"".join(lines) + b"--x--\r\n"


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
