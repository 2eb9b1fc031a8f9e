"""POST /v1/upload/{table}: files as people send them, by the ingest function over a directory."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.cli.command_line import cli
from alluvia.events.ingest.values import Limits
from alluvia.files.limits import FileLimits
from functions.ingest.settings import IngestSettings
from tests.access import known
from tests.functions.sent_files import CSV, SETTINGS, parquet, refused, rows, send

SMALL = replace(SETTINGS, files=FileLimits(bytes_max=1 << 20))


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(str(tmp_path))


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ('[{"a": %s}]' % ("[" * 17 + "1" + "]" * 17), ""),
        ('[{"a": %s}]' % ('{"b": ' * 17 + "1" + "}" * 17), ""),
        ('[{"a": %s}]' % ("[" * 240 + "1" + "]" * 240), ""),
        ('[{"sku": "9", "a": %s}]' % ("[" * 17 + "1" + "]" * 17), "evolve=true"),
    ],
    ids=["lists", "structs", "240", "evolve"],
)
def test_a_file_whose_values_are_nested_too_deeply(lake: alluvia.Lake, body: str, query: str) -> None:
    if query:
        send(lake, "t", CSV, content_type="text/csv")
    before = lake.tables()
    found = refused(send(lake, "t", body.encode(), query, content_type="application/json"))
    assert found == (422, "row 1: column a is nested more than 16 levels deep: flatten it, or make it JSON text")
    assert lake.tables() == before


def test_a_file_creates_its_table_and_the_answer_says_the_types(lake: alluvia.Lake) -> None:
    status, body, headers = send(lake, "prices", CSV, content_type="text/csv; charset=utf-8")
    columns = {"sku": "string", "price": "double", "stock": "long"}
    assert (status, body) == (200, {"table": "prices", "rows": 2, "version": 1, "columns": columns})
    assert headers["Alluvia-Table"] == "prices"
    assert rows(lake, "prices") == [
        {"sku": "007", "price": 9.9, "stock": 12},
        {"sku": "008", "price": None, "stock": None},
    ]
    assert send(lake, "prices", CSV, "format=csv")[1] == {"table": "prices", "rows": 2, "version": 2}
    for number, delimiter in enumerate((b";", b"|", b"\t"), 3):
        file = CSV.replace(b",", delimiter)
        assert send(lake, "prices", file, "format=csv")[1] == {"table": "prices", "rows": 2, "version": number}


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"sku,price,stock\n1,2,3\n1,x,3\n", 422, "row 2, column price: expected a number (double), got a string"),
        (b"sku,price,stock\n1,2,3.5\n", 422, "row 1, column stock: 3.5 has a fraction, which a long cannot hold"),
        (b"sku,price,stock\n1,2,9223372036854775808\n", 422, "row 1, column stock: the number does not fit a long"),
        (b"sku,price,stock\n1,2\n", 422, "row 1: Expected 3 columns, got 2: 1,2"),
        (b"sku,price\n1,2\n", 422, "the file lacks the column 'stock' of the table: add it, or declare a schema"),
        (b"sku,price,stock,more\n1,2,3,4\n", 422, "column 'more' is not in the table: leave it out"),
        (b"sku,price,stock\n1,2,3\n\xff,2,3\n", 422, "row 2, column sku: not valid UTF-8"),
        (b'sku,price,stock\n"1,2,3\n', 422, "row 1: not valid CSV: a quote is not closed"),
        (b'sku,price,stock\n1,2,3\n"1",2,"3\n', 422, "row 2: not valid CSV: a quote is not closed"),
        (b"", 400, "the body is empty"),
        (b"\n\n", 422, "the file is empty"),
        (b"a,b\r1,2\r", 422, "rows end in carriage returns (\\r) alone: end them with line feeds"),
        (b"sku,SKU,stock\n", 422, "the file has the column 'SKU' twice"),
        (b"sku,,stock\n", 422, "the file lacks the column 'price' of the table"),
        (b"sku,price,stock,\n1,2,3,\n1,2,3,4\n", 422, "row 2: column 4 of the file has no name, but has '4'"),
        (b"a," * 3000, 422, "the file has 3001 columns, more than the limit of 2000"),
        (b"x" * (1 << 21), 422, "the header row is longer than"),
        (gzip.compress(CSV)[:-9], 422, "the gzip data is damaged"),
    ],
    ids=range(18),
)  # fmt: skip
def test_what_does_not_fit_is_refused_whole(lake: alluvia.Lake, body: bytes, status: int, error: str) -> None:
    send(lake, "prices", CSV, "format=csv")
    found = refused(send(lake, "prices", body, "format=csv"))
    assert found[0] == status
    assert found[1].startswith(error)
    assert lake.table("prices").version == 1


def test_a_file_creates_no_table_over_a_view(lake: alluvia.Lake) -> None:
    lake.sql("CREATE VIEW prices AS SELECT 1 AS n")
    error = "there is a view prices: DROP VIEW prices first, or choose another name"
    assert refused(send(lake, "prices", CSV, content_type="text/csv")) == (400, error)
    assert lake.sql("FROM prices").to_pylist() == [{"n": 1}]


def test_a_header_without_rows_creates_no_table_of_guesses(lake: alluvia.Lake) -> None:
    squashed = b"sku,priceA,1"  # two lines of a file, as `curl -d` sends it
    for query in ("format=csv", "format=csv&evolve=true"):
        status, error = refused(send(lake, "prices", squashed, query))
        assert (status, error.split(":")[0]) == (422, "the file has a header and no rows, so its types are not known")
    assert lake.tables() == []
    assert send(lake, "prices", b"sku,n\n", "format=csv&schema=sku:string,n:long")[1]["rows"] == 0
    assert send(lake, "prices", b"sku,n\n", "format=csv")[1]["rows"] == 0  # the table knows the types


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"a": 1}\n{"a": "x"}', "row 2, column a: expected a number, as in rows before, got a string"),
        (b'{"a": 1}\n{"a": 1', "row 2: not valid JSON"),
        (b'{"a": 1}\n5', "row 2: "),
        (b'{"a": null}\n{"a": {}}\n{"a": {}}', "row 2, column a: objects without fields have no type"),
        (b'{"a": 0.5}\n{"a": 1e400}\n{"a": 1e401}', "row 2, column a: its numbers have, with this one, more digits"),
        (b'[{"a": 1e30}, {"a": 123456789012345678901234567890.5}, {"a": 1e37}]', "row 3, column a: its numbers have"),
        (b'{"a": 1e-30}\n{"a": 12345678901234567.89}\n{"a": 5}', "row 2, column a: its numbers have, with this one"),
        (b'{"a": {"b": [1, 2]}}\n{"a": {"b": [3, 1e-400]}}', "row 2, column a.b[]: its numbers have, with this one"),
        (b'{"a": 1}\n{"a": 2, "A": 3}', "row 2: the file has the column 'A' twice"),
        (b'{"a": 1}\n{"a": 2, "": 3}', "row 2: a field has no name"),
        (parquet(pa.table({"a": pa.array([1], pa.time64("us"))})), "column a: a table has no type for time64[us]"),
        (parquet(pa.table({"a": pa.array([1000, 1500], pa.timestamp("ns"))})), "row 2, column a: "),
        (b"PAR1 and no more", "the Parquet file is damaged"),
    ],
    ids=range(13),
)  # fmt: skip
def test_what_has_no_type_creates_no_table(lake: alluvia.Lake, body: bytes, error: str) -> None:
    status, found = refused(send(lake, "t", body))
    assert (status, found[: len(error)]) == (422, error)
    assert lake.tables() == []


def test_a_value_of_another_kind_is_refused_and_not_those_before_it(lake: alluvia.Lake) -> None:
    kinds = {"true": "true or false", "1": "a number", '"x"': "a string", '{"b": 1}': "an object", "[1]": "an array"}
    for (first, expected), (second, _) in permutations(kinds.items(), 2):
        status, found = refused(send(lake, "t", f'{{"a": null}}\n{{"a": {first}}}\n{{"a": {second}}}'.encode()))
        error = f"row 3, column a: expected {expected}, as in rows before, got "
        assert (status, found[: len(error)]) == (422, error)


def test_a_column_of_numbers_may_be_null_for_many_rows(lake: alluvia.Lake) -> None:
    nulls = b'{"a": null, "s": "%s"}\n' % (b"x" * 100_000) * 90
    status, answer, _ = send(lake, "t", b'{"a": 1}\n' + nulls + b'{"a": 2}\n', "format=ndjson")
    assert (status, answer["rows"], answer["columns"]) == (200, 92, {"a": "long", "s": "string"})


def test_a_declared_schema_that_the_rows_do_not_fit_creates_no_table(lake: alluvia.Lake) -> None:
    found = refused(send(lake, "t", b"a\n1\nx\n", "format=csv&schema=a:long"))
    assert found == (422, "row 2, column a: expected a number (long), got a string (it has 'x')")
    assert lake.tables() == []


def test_a_declared_schema_leaves_columns_of_the_table_out_and_types_what_is_new(lake: alluvia.Lake) -> None:
    send(lake, "prices", CSV, "format=csv")
    assert send(lake, "prices", b"sku\n9\n", "format=csv&schema=sku:string")[1]["rows"] == 1
    status, body, _ = send(
        lake, "prices", b"sku,cost\n9,1.5\n", "format=csv&schema=sku:string,cost:decimal(9,2)&evolve=1"
    )
    assert (status, body["columns"]) == (200, {"cost": "decimal(9,2)"})
    assert rows(lake, "prices")[-1] == {"sku": "9", "price": None, "stock": None, "cost": Decimal("1.50")}
    found = refused(send(lake, "prices", b"sku\n9\n", "format=csv&schema=sku:long"))
    assert found == (422, "schema: column sku is string in the table, not long")
    found = refused(send(lake, "prices", b"sku,stock\n9,1\n", "format=csv&schema=sku:string"))
    assert found[1].startswith("the file lacks the column 'price' of the table: add it, or declare a schema of the")


def test_a_schema_of_some_columns_leaves_the_others_to_the_file_or_the_table(lake: alluvia.Lake) -> None:
    body = b"id,day,sales\n007,2026-11-28,12.50\n"
    status, answer, _ = send(lake, "t", body, "format=csv&schema=sales:decimal(12,2)")
    assert (status, answer["columns"]) == (200, {"id": "string", "day": "date", "sales": "decimal(12,2)"})
    assert send(lake, "t", body, "format=csv&schema=sales:decimal(12,2)")[1]["version"] == 2
    more = b"id,day,sales,tax,note\n8,2026-11-28,1,0.10,x\n"
    answer = send(lake, "t", more, "format=csv&evolve=1&schema=tax:decimal(9,2)")[1]
    assert answer["columns"] == {"tax": "decimal(9,2)", "note": "string"}
    assert rows(lake, "t")[-1]["tax"] == Decimal("0.10")
    found = refused(send(lake, "u", body, "format=csv&schema=sale:decimal(12,2)"))
    assert found[0] == 422
    assert found[1].startswith("schema: the file has no column 'sale': ")
    found = refused(send(lake, "u", body, "format=csv&schema=day:long"))
    assert found[1].startswith("row 1, column day: expected a number (long)")
    assert lake.tables() == ["t"]


def test_cells_of_nested_columns_are_json(lake: alluvia.Lake) -> None:
    columns = "format=csv&schema=n:long,tags:array<string>,at:struct<x:long,y:double>"
    body = b'n,tags,at\n1,"[""a"",""b""]","{""x"":1,""y"":2.5}"\n2,,\n'
    assert send(lake, "t", body, columns)[1]["rows"] == 2
    assert rows(lake, "t") == [
        {"n": 1, "tags": ["a", "b"], "at": {"x": 1, "y": 2.5}},
        {"n": 2, "tags": None, "at": None},
    ]
    found = refused(send(lake, "t", b'n,tags,at\n1,"[""a""]",\n2,"[1]",\n', "format=csv"))
    assert found == (422, "row 2, column tags: tags[0]: expected a string, got a number (it has '[1]')")


def test_rules_of_the_table_hold(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"a": "long"}, properties={"delta.constraints.positive": "a > 0"})
    status, error = refused(send(lake, "t", b"a\n1\n-1\n", "format=csv"))
    assert (status, "positive" in error, lake.table("t").count()) == (422, True, 0)


def test_a_file_for_a_table_of_events_is_ingested(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", pa.schema([("n", pa.int64())]))
    body = b"event_id,event,n\n1,open,5\n2,close,x\n"
    counts = {"accepted": 1, "stored": 1, "duplicates": 0, "rejected": 1, "conflicting": 0, "version": 1}
    errors = [{"position": 1, "reason": "n: expected a number (long), got a string"}]
    assert send(lake, "clicks", body, "format=csv")[:2] == (200, counts | {"errors": errors})
    assert send(lake, "clicks", body, "format=csv")[1]["duplicates"] == 1
    table = pa.table({"event": ["a", "b"], "tags": pa.array(["x", "y"]).dictionary_encode()})
    for expected in ((2, 0), (0, 2)):
        answer = send(lake, "clicks", parquet(table), "key=k")[1]
        assert (answer["stored"], answer["duplicates"]) == expected
    assert {row["properties"] for row in rows(lake, "clicks")} == {None, '{"tags":"x"}', '{"tags":"y"}'}
    assert refused(send(lake, "clicks", body, "format=csv&evolve=true"))[0] == 400


def test_the_outcomes_of_a_files_parts_add_up(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    large = [b'{"event_id":"%d","text":"%b"}\n' % (at, b"x" * 400_000) for at in range(11)]  # over 4 MB: a part
    other = b'{"event_id":"1","text":"other"}\n'
    body = b"".join([b"5\n" * 60, *large, b"6\n" * 60, large[0], other])
    status, answer, _ = send(lake, "clicks", body, "format=ndjson")
    counts = {"accepted": 12, "stored": 11, "duplicates": 1, "rejected": 121, "conflicting": 1}
    assert (status, {name: answer[name] for name in counts}) == (200, counts)
    assert answer["version"] == lake.table("clicks").version
    positions = [*range(60), *range(71, 111)]
    assert ([each["position"] for each in answer["errors"]], answer["errors_left_out"]) == (positions, 21)


def test_the_parts_of_parquet_depend_on_its_rows_alone(lake: alluvia.Lake, tmp_path: Path) -> None:
    """So that events without ids are the same ones by whichever way they come, and make few commits."""
    lake.create_events("clicks")
    table = pa.table({"n": range(6000)})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=100)
    assert send(lake, "clicks", path.read_bytes(), "format=parquet")[1]["stored"] == 6000
    assert lake.table("clicks").version == 2
    command = ["ingest", "clicks", str(path), "--lake", str(tmp_path), "--json"]
    assert json.loads(CliRunner().invoke(cli, command).stdout)["duplicates"] == 6000


def test_rights(lake: alluvia.Lake) -> None:
    def with_rights(*operations: str, create: bool = False) -> IngestSettings:
        grants = (Grant(frozenset(operations), ("prices",)),)
        return replace(SETTINGS, authorization=known(Rights(grants)), create_tables=create)

    def as_one(*operations: str, query: str = "format=csv", create: bool = False, body: bytes = CSV) -> tuple[int, str]:
        status, answer, _ = send(lake, "prices", body, query, with_rights(*operations, create=create))
        return status, answer.get("error", "")

    assert as_one("read") == (403, "this needs the scope append:prices, which this caller lacks")
    found = as_one("append")
    assert found == (404, "there is no table 'prices', and this caller lacks the scope admin:prices, to create it")
    assert as_one("append", "admin", query="format=csv&create=false")[0] == 404
    assert as_one("append", create=True) == (200, "")
    assert as_one("append") == (200, "")
    assert as_one("append", query="format=csv&evolve=true")[0] == 403
    grants = (Grant(frozenset({"append"}), ("*",)), Grant(frozenset({"read"}), ("*",), hide=frozenset({"stock"})))
    limited = replace(SETTINGS, authorization=known(Rights(grants)))
    status, answer, _ = send(lake, "prices", b"sku,price\n1,2\n", "format=csv", limited)
    assert (status, "stock" in answer["error"]) == (422, False)
    lake["prices"].evolve(rename={"stock": "left"})
    lake["prices"].evolve(rename={"left": "on_hand"})
    status, answer, _ = send(lake, "prices", b"sku,price\n1,2\n", "format=csv", limited)
    assert (status, "on_hand" in answer["error"]) == (422, False)


def test_bombs_end_at_the_limit(lake: alluvia.Lake) -> None:
    bomb = gzip.compress(b"a\n" + b"1\n" * (1 << 20))
    assert refused(send(lake, "t", bomb, "format=csv", SMALL))[0] == 413
    words = pa.array(["x" * 10_000] * 5000).dictionary_encode()
    for column in (words, pa.array([["y" * 10_000] * 100] * 50), pa.nulls(2 << 20)):
        body = parquet(pa.table({"a": column}))
        assert len(body) < 200_000
        assert refused(send(lake, "t", body, "", SMALL))[0] == 413
    assert refused(send(lake, "t", CSV, "format=csv", replace(SETTINGS, limits=Limits(body_bytes=9))))[0] == 413
    assert lake.tables() == []


@pytest.mark.parametrize(
    ("table", "options", "error"),
    [
        (
            pa.table({"a": pa.array([[0] * 300_000]), "b": [1]}),
            {},
            "column a.list.element: row group 0 has 300000 values, which take more than the limit of 1048576 bytes",
        ),
        (
            pa.table({name: pa.array([0] * 50_000) for name in "abc"} | {"d": pa.array([True] * 50_000)}),
            {"use_dictionary": False, "compression": "zstd", "row_group_size": 10_000},
            "the file's columns inflate to ",
        ),
        (
            pa.table({"a": [0] * 150_000, "b": [None] * 150_000}),
            {},
            "the file's columns hold values of 1800000 bytes, 1200000 of them in column a: more than the limit",
        ),
    ],
    ids=["list", "zeros", "runs"],
)
def test_parquet_that_takes_too_much_is_refused_by_its_footer(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, table: pa.Table, options: dict[str, Any], error: str
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("a page was read")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", read)
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    assert sink.tell() < 20_000
    status, found = refused(send(lake, "t", sink.getvalue(), "", SMALL))
    assert (status, found[: len(error)]) == (413, error)
    lake.create_events("events", pa.schema([]))
    assert refused(send(lake, "events", sink.getvalue(), "", SMALL))[0] == 413


def test_the_charset_of_the_type_is_the_encoding_of_the_file(lake: alluvia.Lake) -> None:
    text = "name;n\nMüller;1\n".encode("windows-1252")
    assert send(lake, "t", text, content_type="text/csv; charset=windows-1252")[0] == 200
    assert send(lake, "t", text, "format=csv&encoding=cp1252&skip=0")[0] == 200
    assert rows(lake, "t") == [{"name": "Müller", "n": 1}] * 2
    status, error = refused(send(lake, "t", text, "format=csv"))
    assert (status, "encoding windows-1252" in error) == (422, True)
    assert refused(send(lake, "t", text, "format=csv&skip=x"))[1].startswith("skip: expected a whole number, got 'x'")
    assert refused(send(lake, "t", text, "format=csv&encoding=zlib"))[0] == 400


def test_grouped_digits_texts_that_mean_null_and_years_of_two_digits(lake: alluvia.Lake) -> None:
    body = b'born,n\n05.06.60,"1,234.50"\n01.01.87,n/a\n'
    query = "format=csv&thousands_separator=,&null=n/a,-&date_format=%25d.%25m.%25y"
    status, answer, _ = send(lake, "t", body, query)
    assert (status, answer["columns"]) == (200, {"born": "date", "n": "double"})
    assert answer["notes"][0].startswith("column born: the years read by %y are from 1987 to 2060")
    assert [row["n"] for row in rows(lake, "t")] == [1234.5, None]
    found = refused(send(lake, "t", body, "format=ndjson&null=x"))
    assert found == (400, "null: leave it out, because the file is ndjson: it is for csv and tsv")
