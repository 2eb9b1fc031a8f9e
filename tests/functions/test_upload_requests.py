"""POST /v1/upload/{table}: the parts of a request that say what a file is, and how it is written."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import alluvia
from tests.functions.sent_files import CSV, FORM, SETTINGS, form, parquet, refused, rows, send

ARROW = (
    b'{"fields": [{"name": "sku", "type": {"name": "utf8"}}, '
    b'{"name": "stock", "type": {"name": "int", "bitWidth": 64, "isSigned": true}}]}'
)


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(str(tmp_path))


@pytest.mark.parametrize(
    ("body", "query", "headers"),
    [
        (b'{"sku": "7", "stock": 1}\n{"sku": "8"}', "", {}),
        (b'[{"sku": "7", "stock": 1}, {"sku": "8", "stock": null}]', "", {"content_type": "application/json"}),
        (b"sku\tstock\n7\t1\n8\t\n", "schema=sku:string,stock:long", {"content_type": "text/tab-separated-values"}),
        (b"sku,stock\n7,1\n8,\n", "format=CSVWithNames&schema=sku:string,stock:bigint", {}),
        (parquet(pa.table({"sku": ["7", "8"], "stock": [1, None]})), "", {"content_type": "application/octet-stream"}),
        (gzip.compress(b'{"sku": "7", "stock": 1}\n{"sku": "8"}'), "format=ndjson", {"content_encoding": "gzip"}),
        (pa.compress(b'{"sku": "7", "stock": 1}\n{"sku": "8"}', "zstd", asbytes=True), "format=jsonl", {}),
        (gzip.compress(b'{"sku": "7", "stock": 1}\n{"sku": "8"}'), "", {}),
        (gzip.compress(b'{"sku": "7", "stock": 1}\n{"sku": "8"}'), "", {"content_type": "application/gzip"}),
        (pa.compress(b'[{"sku": "7", "stock": 1}, {"sku": "8"}]', "zstd", asbytes=True), "", {}),
        (form(("data", b'{"sku": "7", "stock": 1}\n{"sku": "8"}')), "", {"content_type": FORM}),
        (
            form(
                ("schema", ARROW),
                ("format", b"csv"),
                ("data", b"sku,stock\n7,1\n8,\n"),
            ),
            "",
            {"content_type": FORM},
        ),
    ],
    ids=range(12),
)  # fmt: skip
def test_every_form_makes_the_same_rows(lake: alluvia.Lake, body: bytes, query: str, headers: dict[str, str]) -> None:
    status, answer, _ = send(lake, "t", body, query, SETTINGS, **headers)
    assert (status, answer["columns"]) == (200, {"sku": "string", "stock": "long"})
    assert rows(lake, "t") == [{"sku": "7", "stock": 1}, {"sku": "8", "stock": None}]


@pytest.mark.parametrize(
    ("body", "query", "headers", "error"),
    [
        (CSV, "", {}, "unknown format"),
        (CSV, "format=orc", {}, "format: 'orc' is not a format"),
        (CSV, "formt=csv", {}, "'formt' is not a parameter of uploads"),
        (CSV, "format=csv&format=tsv", {}, "format is given twice"),
        (CSV, "format=csv&create=maybe", {}, "create: expected true or false"),
        (CSV, "format=csv", {"content_encoding": "br"}, "Content-Encoding 'br' is not supported"),
        (CSV, "format=csv&schema=a", {}, "schema: 'a' is not a column"),
        (form(("file", CSV)), "", {"content_type": FORM}, "the form has the field 'file': send data"),
        (form(("data", CSV), ("data", CSV)), "", {"content_type": FORM}, "the form has the field data twice"),
        (form(("schema", b"a:long")), "", {"content_type": FORM}, "the form has no field data"),
        (form(("data", CSV))[:-9], "", {"content_type": FORM}, "the form cannot be read"),
        (CSV, "", {"content_type": "multipart/form-data"}, "Content-Type: multipart/form-data must name its boundary"),
        (form(*((f"f{at}", b"") for at in range(100))), "", {"content_type": FORM}, "the form "),
    ],
    ids=range(13),
)  # fmt: skip
def test_requests_that_make_no_sense(
    lake: alluvia.Lake, body: bytes, query: str, headers: dict[str, str], error: str
) -> None:
    status, found = refused(send(lake, "t", body, query, SETTINGS, **headers))
    assert (status, found[: len(error)]) == (415 if error.startswith("Content-Encoding") else 400, error)
    assert lake.tables() == []


def test_a_function_that_queues_events_takes_no_files(lake: alluvia.Lake) -> None:
    status, error = refused(send(lake, "t", CSV, "format=csv", replace(SETTINGS, queue_url="https://queue")))
    assert (status, error.partition(":")[0]) == (400, "this function only puts events into a queue")


GERMAN = b"Nr;Preis;am;Zeit\n1;12,50;20.11.2026;20.11.2026 10:00\n2;1.234,50;21.11.2026;21.11.2026 10:00\n"
AS_WRITTEN = {
    "delimiter": ";",
    "decimal_separator": ",",
    "date_format": "%d.%m.%Y",
    "timestamp_format": "%d.%m.%Y %H:%M",
    "rename": "Nr=order id",
}
READ = {"order id": "long", "Preis": "double", "am": "date", "Zeit": "timestamp_ntz"}


def test_a_request_says_how_its_file_is_written(lake: alluvia.Lake) -> None:
    status, answer, _ = send(lake, "t", GERMAN, urlencode({"format": "csv", **AS_WRITTEN}))
    assert (status, answer["columns"], "notes" in answer) == (200, READ, False)
    fields = [(name, value.encode()) for name, value in AS_WRITTEN.items()]
    body = form(*fields, ("format", b"csv"), ("evolve", b"true"), ("create", b"true"), ("key", b"k"), ("data", GERMAN))
    assert send(lake, "t", body, content_type=FORM)[0] == 200
    assert [(row["order id"], row["Preis"], str(row["am"])) for row in rows(lake, "t")] == [
        (1, 12.5, "2026-11-20"),
        (2, 1234.5, "2026-11-21"),
    ] * 2


def test_a_request_that_does_not_say_it_gets_a_note_or_an_error(lake: alluvia.Lake) -> None:
    status, answer, _ = send(lake, "t", GERMAN, "format=csv")
    assert (status, answer["columns"]["Preis"]) == (200, "string")
    assert [note.partition(":")[0] for note in answer["notes"]] == [
        f"column {name} is text" for name in ("Preis", "am", "Zeit")
    ]
    declared = "format=csv&" + urlencode({"schema": "Nr:long,Preis:double,am:string,Zeit:string"})
    status, answer, _ = send(lake, "u", GERMAN, declared)
    assert (status, "the decimal separator seems to be a comma" in answer["error"]) == (422, True)
    for query, named in (
        ("format=csv&delimiter=xy", "delimiter: use one character"),
        ("format=ndjson&decimal_separator=,", "decimal_separator: leave it out, because the file is ndjson"),
        ("format=csv&date_format=%25d", "date_format: '%d' does not say the day, the month and the year"),
        ("format=csv&rename=a", "rename: 'a' is not a pair of names"),
    ):
        status, answer, _ = send(lake, "u", GERMAN, query)
        assert (status, named in answer["error"]) == (400, True), answer
    assert lake.tables() == ["t"]
