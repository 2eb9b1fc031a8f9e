"""Rows to a server, as a Parquet file: in one request, or in parts where it is large."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any
from urllib.parse import quote

import orjson
import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.client.requests import LakeServer, NotYet
from alluvia.errors import Invalid, Unavailable

Rows = pa.Table | pa.RecordBatchReader
WHOLE_BYTES_MAX = 4_000_000
"""A larger file goes in parts: a request to Lambda takes little more."""
WAIT_SECONDS, WAITS_MAX = 5.0, 180


def upload(server: LakeServer, table: str, rows: Rows) -> dict[str, Any]:
    """Append rows to an existing table, all or none, and return the answer.

    Raises `Invalid` where a table of events rejects some.
    """
    path = f"/v1/upload/{quote(table, safe='')}"
    asked = "format=parquet&create=false"
    with tempfile.TemporaryFile() as file:
        with pq.ParquetWriter(file, rows.schema, compression="zstd") as writer:
            if isinstance(rows, pa.Table):
                writer.write_table(rows)
            else:
                for batch in rows:
                    writer.write_batch(batch)
        size = file.tell()
        file.seek(0)
        if size <= WHOLE_BYTES_MAX:
            kind = {"Content-Type": "application/vnd.apache.parquet"}
            done = server.outcome(f"{path}?{asked}", file.read(), kind)
        else:
            done = _in_parts(server, f"{path}?{asked}", file, size)
    if done.get("rejected"):
        raise Invalid(_rejected(table, done))
    return dict(done)


def _rejected(table: str, done: Mapping[str, Any]) -> str:
    others = "the others stored" if done.get("accepted") else "none stored"
    first = next((f", such as {each['reason']!r}" for each in done.get("errors", ())), "")
    return (
        f"{done['rejected']} of the rows were rejected, and {others}: {table} is a table of events, and "
        f"{table}._rejects has the reasons{first}"
    )


def _in_parts(server: LakeServer, path: str, file: IO[bytes], size: int) -> Any:
    begun = server.json("POST", f"{path}&bytes={size}")
    for part in begun["parts"]:
        server.put_part(part["url"], file.read(begun["part_bytes"]))
    told = orjson.dumps({"bytes": size})
    for _ in range(WAITS_MAX):  # to complete an upload again gives the first answer
        try:
            done = server.outcome(begun["complete"], told, {"Content-Type": "application/json"})
        except NotYet:
            done = None  # API Gateway does not wait for long
        if done is not None and done.get("state") != "running":
            return done
        time.sleep(WAIT_SECONDS)
    raise Unavailable("the server has not said whether it stored the rows: check the table before you send them again")
