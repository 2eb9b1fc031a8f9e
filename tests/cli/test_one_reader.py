"""One corpus of files goes through every way in: each has the same rows, whatever reads it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.values import UNLIMITED, Limits
from alluvia.files.event_files import NDJSON, parts
from alluvia.store import MemoryStore
from alluvia_spark.backfill_job.normalise import read_events
from alluvia_spark.sources.files import FileSplit, SourceFile
from alluvia_spark.sources.formats import read_blocks
from tests.functions.sent_files import send

COLUMNS = pa.schema(
    [("id", pa.int64()), ("s", pa.string()), ("d", pa.float64()), ("p", pa.decimal128(20, 2)), ("b", pa.bool_())]
)
PROBES: list[tuple[str | None, float | None, str | None, bool | None]] = [
    ("NA", 0.1, "9.90", True),
    ("null", 1e300, "0.01", False),
    ("NULL", 5e-324, None, None),
    ("NaN", -0.0, "123456789012345678.99", True),
    ("N/A", 123456789012345.67, "-1.50", False),
    ("nan", 2.5e-8, "1.00", None),
    ("#N/A", 9007199254740992.0, "2.00", True),
    ("-", 1.7976931348623157e308, "3.00", False),
    ("007", 1.0, "4.00", True),
    ("1e5", None, "5.00", True),
    ("true", 12.0, "6.00", True),
    ("2026-01-02", 13.0, "7.00", True),
    (" spaces ", 14.0, "8.00", True),
    ('a "quote"', 15.0, "9.00", True),
    ("a,comma", 16.0, "10.00", True),
    ("two\nlines", 17.0, "11.00", True),
    ("tab\tbed", 18.0, "12.00", True),
    ("grüße 😀", 19.0, "13.00", True),
    (None, 20.0, "14.00", True),
    ("", 21.0, "15.00", None),
    ("", None, None, None),
    ('""', 22.0, "16.00", True),
]
ROWS = [
    {"id": at, "s": s, "d": d, "p": None if p is None else Decimal(p), "b": b} for at, (s, d, p, b) in enumerate(PROBES)
]


def separated(by: str) -> bytes:
    def cell(name: str, value: Any) -> str:
        """Write null as nothing, but for the columns `p` and `b` as a quoted empty cell; the empty text as that."""
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        if not text:
            return '""' if value is not None or name in "pb" else ""
        return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(each in text for each in '",\n\t') else text

    lines = [by.join(COLUMNS.names), *(by.join(map(cell, row, row.values())) for row in ROWS)]
    return "\n".join(lines).encode() + b"\n"


def objects() -> list[bytes]:
    def value(of: Any) -> Any:
        return orjson.Fragment(str(of)) if isinstance(of, Decimal) else of

    return [orjson.dumps({name: value(of) for name, of in row.items()}) for row in ROWS]


def parquet(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS, COLUMNS), sink, **options)
    return sink.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "rows.csv": lambda: separated(","),
    "rows.tsv": lambda: separated("\t"),
    "rows.ndjson": lambda: b"\n".join(objects()) + b"\n",
    "rows.json": lambda: b"[" + b", ".join(objects()) + b"]",
    "rows.parquet": parquet,
    "plain.parquet": lambda: parquet(use_dictionary=False, data_page_version="2.0", row_group_size=5),
}


@pytest.fixture(params=list(FILES))
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / "files" / request.param
    path.parent.mkdir()
    path.write_bytes(FILES[request.param]())
    return path


def rows_in(lake: alluvia.Lake, table: str) -> list[dict[str, Any]]:
    return lake.sql(f"SELECT id, s, d, p, b FROM {table} ORDER BY id").to_pylist()


def shell(lake: Path, *words: str) -> None:
    result = CliRunner().invoke(cli, [words[0], "--lake", str(lake), *words[1:]])
    assert result.exit_code == 0, result.output


def test_every_way_in_reads_the_same_rows(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = alluvia.connect(root)
    for table in ("posted", "uploaded", "upserted"):
        lake.create_table(table, COLUMNS)
    lake.create_events("ingested", COLUMNS)
    lake.create_events("sent", COLUMNS)
    kind = {"json": "ndjson"}.get(file.suffix[1:], file.suffix[1:])
    assert send(lake, "posted", file.read_bytes(), f"format={kind}")[0] == 200
    assert send(lake, "sent", file.read_bytes(), f"format={kind}")[0] == 200
    shell(root, "upload", "uploaded", str(file))
    shell(root, "upsert", "upserted", str(file), "--on", "id")
    shell(root, "ingest", "ingested", str(file))
    using = {"tsv": "csv", "json": "ndjson"}.get(kind, kind)
    columns = "" if kind == "parquet" else " (id BIGINT, s STRING, d DOUBLE, p DECIMAL(20,2), b BOOLEAN)"
    if kind != "tsv":
        lake.sql(f"CREATE EXTERNAL TABLE outside{columns} USING {using} LOCATION '{file}'")
    for table in ("posted", "uploaded", "upserted", "ingested", "sent", *(["outside"] if kind != "tsv" else [])):
        assert rows_in(lake, table) == ROWS, table


def test_a_backfill_reads_the_events_that_ingestion_reads(file: Path) -> None:
    data = file.read_bytes()
    store = MemoryStore()
    store.put(file.name, data)
    info = store.head(file.name)
    assert info is not None
    split = FileSplit(SourceFile("s3://b", file.name, len(data), info.etag), 0, len(data))
    sent = []
    for block in read_blocks(store, split, line_limit_bytes=1 << 20):
        found, rejects = read_events(block, Limits())
        assert not rejects
        sent += [event.value for event in found]
    ingested = []
    for part in parts(io.BytesIO(data), file.name):
        body = SentBody({"content-type": part.media_type}, part.data, 0)
        ingested += [
            event.value
            for event in by_name("json" if part.media_type == NDJSON else "csv").read(body, UNLIMITED).events
        ]
    assert sent == ingested
    assert len(sent) == len(ROWS)


def test_types_are_found_alike_by_upload_and_upsert(tmp_path: Path) -> None:
    text = "id,code,when\n1,007,2026-01-02\n2,NA,2026-01-03\n"
    (tmp_path / "a.csv").write_text(text)
    lake = alluvia.connect(tmp_path / "lake")
    shell(tmp_path / "lake", "upload", "t", str(tmp_path / "a.csv"))
    shell(tmp_path / "lake", "upsert", "t", str(tmp_path / "a.csv"), "--on", "id")
    found = json.loads(lake.sql("SELECT to_json(list(t ORDER BY id)) AS j FROM t").to_pylist()[0]["j"])
    assert [row["code"] for row in found] == ["007", "NA"]
