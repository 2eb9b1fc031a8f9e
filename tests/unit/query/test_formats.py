from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.engine.duck.failures import QueryTooCostly, ResultTooLarge
from alluvia.errors import Invalid
from alluvia.files.csv_rows import CsvRows
from alluvia.files.reading_options import reading_options
from alluvia.query.formats import (
    ARROW,
    CSV,
    FORMATS,
    JSON,
    NDJSON,
    PARQUET,
    SAFE_CSV,
    TSV,
    Format,
    NotAcceptable,
    choose_format,
    csv_written,
    format_named,
)
from alluvia.query.rendering import PART_BYTES, Overflow, render

TABLE = pa.table(
    {
        "n": pa.array([1, None], pa.int64()),
        "text": ['a,"b"\r\nc', ""],
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
        "value": [float("nan"), float("-inf")],
        "ok": [True, False],
    }
)
MANY = pa.table({"n": pa.array(range(10_000)), "s": ["x" * 10] * 10_000})


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, NDJSON),
        ("", NDJSON),
        ("*/*", NDJSON),
        ("application/*", NDJSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", NDJSON),
        ("application/x-ndjson", NDJSON),
        ("application/jsonl", NDJSON),
        ("application/json", JSON),
        ("Application/JSON; charset=utf-8", JSON),
        ("text/csv", CSV),
        ("text/*", CSV),
        ("text/tab-separated-values", TSV),
        ("application/vnd.apache.parquet", PARQUET),
        ("application/vnd.apache.arrow.stream", ARROW),
        ("application/json;q=0.5, text/csv", CSV),
        ("application/json;q=0.5, text/csv;q=0.4", JSON),
        ("text/csv;q=0, */*;q=0.1", NDJSON),
        ("*/*;q=0.1, text/csv;q=0.2", CSV),
        ("application/x-ndjson;q=0, application/ndjson;q=0, application/jsonl;q=0, application/*", JSON),
        ("application/json;q=2, text/csv", JSON),
        ("application/json;q=nan, text/csv;q=0.1", CSV),
        ("text/html, text/csv;q=0.001", CSV),
    ],
)
def test_the_form_that_the_caller_prefers(accept: str | None, expected: Format) -> None:
    assert choose_format(accept) == expected


@pytest.mark.parametrize("accept", ["text/html", "image/*", "*/*;q=0", "application/json;q=0", "json", ";;,"])
def test_a_form_that_there_is_not(accept: str) -> None:
    if accept == ";;,":
        assert choose_format(accept) == NDJSON
        return
    with pytest.raises(NotAcceptable, match=r"application/x-ndjson, application/json, text/csv, application/vnd"):
        choose_format(accept)


def text_of(table: pa.Table, form: Format) -> str:
    return render(table.schema, table.to_batches(), form, 10_000_000).body.decode()


def test_ndjson_is_one_object_a_line() -> None:
    first, second = text_of(TABLE, NDJSON).splitlines()
    assert first == r'{"n":1,"text":"a,\"b\"\r\nc","price":1.50,"list":[1,2],"value":null,"ok":true}'
    assert json.loads(second) == {"n": None, "text": "", "price": None, "list": None, "value": None, "ok": False}


def test_json_is_an_array_of_the_same_objects() -> None:
    lines = [json.loads(line) for line in text_of(TABLE, NDJSON).splitlines()]
    assert json.loads(text_of(TABLE, JSON)) == lines


def test_csv_tells_null_from_empty_and_reads_back() -> None:
    text = text_of(TABLE, CSV)
    assert text.splitlines(keepends=True)[0] == "n,text,price,list,value,ok\r\n"
    assert text.endswith(',"",,,-Infinity,false\r\n')
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[1] == ["1", 'a,"b"\r\nc', "1.50", "[1,2]", "NaN", "true"]


def test_arrow_keeps_types() -> None:
    data = render(TABLE.schema, TABLE.to_batches(), ARROW, 10_000_000).body
    read = pa.ipc.open_stream(data).read_all()
    assert read.schema == TABLE.schema
    assert read.drop(["value"]).equals(TABLE.drop(["value"]))


def test_parquet_keeps_types_and_all_columns() -> None:
    read = pq.read_table(io.BytesIO(render(TABLE.schema, TABLE.to_batches(), PARQUET, 10_000_000).body))
    assert read.drop(["list", "value"]).equals(TABLE.drop(["list", "value"]))
    assert read["list"].to_pylist() == TABLE["list"].to_pylist()
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    read = pq.read_table(io.BytesIO(render(twice.schema, twice.to_batches(), PARQUET, 10_000).body))
    assert read.to_pylist() == [{"a": 1, "a_1": 2}]
    many = pa.concat_tables([MANY] * 10)
    assert pq.read_table(io.BytesIO(render(many.schema, many.to_batches(), PARQUET, 10_000_000).body)).equals(many)


def test_tsv_escapes_what_would_not_fit() -> None:
    rows = pa.table({"a\tb": ["x\ty\nz\\", None], "c": [[1.5], None], "d": pa.array(["", "\\N"])})
    assert text_of(rows, TSV) == "a\\tb\tc\td\nx\\ty\\nz\\\\\t[1.5]\t\n\\N\t\\N\t\\\\N\n"


@pytest.mark.parametrize(("form", "expected"), [(TSV, "n\ts\n"), (NDJSON, ""), (JSON, "[]\n"), (CSV, "n,s\r\n")])
def test_no_rows(form: Format, expected: str) -> None:
    assert text_of(MANY.slice(0, 0), form) == expected


def test_no_rows_in_arrow() -> None:
    empty = MANY.slice(0, 0)
    assert pa.ipc.open_stream(render(empty.schema, [], ARROW, 10_000).body).read_all().equals(empty)


def test_a_repeated_name_hides_no_column() -> None:
    table = pa.Table.from_arrays([pa.array([one]) for one in range(5)], ["a", "a", "a_1", "a", "b"])
    assert json.loads(text_of(table, NDJSON)) == {"a": 0, "a_2": 1, "a_1": 2, "a_3": 3, "b": 4}
    assert text_of(table, CSV).splitlines() == ["a,a,a_1,a,b", "0,1,2,3,4"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_limit_is_exact_and_says_what_to_do(form: Format) -> None:
    size = len(render(MANY.schema, MANY.to_batches(), form, 10_000_000).body)
    assert len(render(MANY.schema, MANY.to_batches(), form, size).body) == size
    with pytest.raises(QueryTooCostly, match=rf"larger than the limit of {size - 1} bytes: add a LIMIT"):
        render(MANY.schema, MANY.to_batches(), form, size - 1)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("after_bytes", [0, 1000, 10_000_000])
def test_the_parts_of_a_large_result_make_the_whole(form: Format, after_bytes: int) -> None:
    batches = MANY.to_batches() * 3
    parts: list[bytes] = []
    rest, rows = render(MANY.schema, batches, form, 10_000_000, Overflow(after_bytes, parts.append))
    assert (b"".join([*parts, rest]), rows) == render(MANY.schema, batches, form, 10_000_000)
    assert bool(parts) == (after_bytes < 10_000_000)
    assert after_bytes < 10_000_000 or rest


def test_a_large_result_is_in_memory_a_part_at_a_time() -> None:
    waiting: list[int] = []
    batches = (pa.record_batch({"s": ["x" * 1000] * 1000}) for _ in range(20))
    rest, rows = render(
        pa.schema({"s": pa.string()}), batches, NDJSON, 1 << 30, Overflow(10, lambda p: waiting.append(len(p)))
    )
    assert (rows, max(waiting) < PART_BYTES + 3_000_000, sum(waiting) + len(rest)) == (20_000, True, 20_000 * 1009)
    with pytest.raises(ResultTooLarge, match="limit of 20000 bytes"):
        render(MANY.schema, MANY.to_batches(), NDJSON, 20_000, Overflow(10, lambda _: None))


@pytest.mark.parametrize("form", FORMATS)
def test_reading_stops_soon_after_the_limit(form: Format) -> None:
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield MANY.to_batches()[0]

    with pytest.raises(QueryTooCostly):
        render(MANY.schema, batches(), form, 50_000 if form.is_compressed else 1_000_000)
    assert taken < 15


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.list_(pa.month_day_nano_interval())])
def test_a_column_that_parquet_cannot_hold_is_named(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("took", kind)])
    refused = r"Parquet cannot hold the type of the column took \(.*INTERVAL.*\): select CAST\(… AS VARCHAR\) for it"
    with pytest.raises(Invalid, match=refused):
        render(schema, [], PARQUET, 1_000_000)


def test_no_text_of_safe_csv_is_a_formula() -> None:
    texts = [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "  =1",
        "|calc",
        "\uff1d1",
        "%0A",
        "a=1",
        "",
        "'",
        'x"=1',
        None,
    ]
    table = pa.table({"=name": texts, "n": [-1.5] * len(texts), "l": [["=1"]] * len(texts)})
    head, *rows = csv.reader(io.StringIO(text_of(table, SAFE_CSV), newline=""))
    assert head == ["'=name", "n", "l"]
    assert [row[0] for row in rows] == [f"'{text}" for text in texts[:10]] + ["a=1", "", "'", 'x"=1', ""]
    assert {(row[1], row[2]) for row in rows} == {("-1.5", '["=1"]')}
    assert choose_format("text/csv") == CSV
    assert format_named("safecsv") == SAFE_CSV


GERMAN = pa.table(
    {
        "n": [1, None],
        "price": pa.array([Decimal("-1.50"), None], pa.decimal128(5, 2)),
        "value": [1234.5, 1e-7],
        "text": ["a;b", "1,5"],
        "list": [[1.5], None],
    }
)


def written(form: Format, table: pa.Table = GERMAN) -> str:
    return render(table.schema, table.to_batches(), form, 1 << 20).body.decode()


def test_csv_for_spreadsheets_of_other_countries() -> None:
    lines = ["n;price;value;text;list", '1;-1,50;1234,5;"a;b";[1.5]', ";;1e-07;1,5;", ""]
    assert written(csv_written(CSV, decimal_separator=",")) == "\r\n".join(lines)
    assert written(csv_written(CSV, bom=True)).startswith("\ufeffn,price,")
    tabs = written(csv_written(CSV, "\\t", ",")).splitlines()
    assert tabs[1] == "1\t-1,50\t1234,5\ta;b\t[1.5]"
    safe = written(csv_written(SAFE_CSV, decimal_separator=",")).splitlines()
    assert safe[1] == '1;-1,50;1234,5;"a;b";[1.5]'
    assert csv_written(CSV) is CSV
    assert csv_written(PARQUET) is PARQUET


def test_what_csv_writes_is_read_with_the_same_options() -> None:
    data = written(csv_written(CSV, decimal_separator=",", bom=True)).encode()
    rows = CsvRows(lambda: io.BytesIO(data), "text/csv", 99, reading_options(decimal_separator=","))
    (table,) = rows.tables(GERMAN.schema.set(4, pa.field("list", pa.string())))
    assert table.drop(["list"]).to_pylist() == GERMAN.drop(["list"]).to_pylist()


def test_a_way_of_writing_csv_is_part_of_the_name() -> None:
    form = csv_written(SAFE_CSV, "|", ",", bom=True)
    assert (form.suffix, form.delimiter, form.decimal_separator, form.bom) == ("safecsv", "|", ",", True)
    assert format_named(form.name) == format_named(form.name.lower()) == form
    assert len({each.name for each in (CSV, csv_written(CSV, ";"), csv_written(CSV, ";", bom=True), form)}) == 4


@pytest.mark.parametrize(
    ("form", "how", "named"),
    [
        (PARQUET, {"bom": True}, "they are for csv and safecsv, not for parquet"),
        (TSV, {"decimal_separator": ","}, "they are for csv and safecsv, not for tsv"),
        (CSV, {"delimiter": ",", "decimal_separator": ","}, "both are a comma"),
        (CSV, {"delimiter": ";;"}, "delimiter: use one character"),
        (CSV, {"delimiter": '"'}, "delimiter: use one character"),
        (CSV, {"delimiter": "5"}, "delimiter: use one character"),
        (CSV, {"decimal_separator": ";"}, "decimal_separator: use . or ,"),
    ],
)
def test_a_way_that_csv_cannot_be_written_in_is_refused(form: Format, how: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid) as error:
        csv_written(form, **how)
    assert named in str(error.value)
