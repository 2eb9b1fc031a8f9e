"""`alluvia upload`: files of rows into tables, without a server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.test_commands import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "lake")


@pytest.fixture
def prices(tmp_path: Path) -> str:
    file = tmp_path / "prices.csv"
    file.write_text("sku,price\n007,9.5\n008,1\n")
    return str(file)


def test_a_file_is_stored_once_by_key_and_fits_or_is_refused(shell: Shell, prices: str) -> None:
    columns = {"sku": "string", "price": "double"}
    first = shell.rows("upload", "prices", prices, "--key", "k")
    assert first == [{"file": prices, "rows": 2, "version": 1, "repeated": False, "columns": columns}]
    assert shell.rows("upload", "prices", prices, "--key", "k") == [first[0] | {"repeated": True}]
    refused = shell.run("upload", "prices", "-", "--format", "csv", stdin=b"sku,price\n9,x\n")
    assert (refused.exit_code, "row 1, column price: expected a number" in refused.output) == (1, True)
    assert shell.run("upload", "prices", prices, prices, "--key", "k").exit_code == 2
    assert shell.run("upload", "new", prices, "--no-create").exit_code == 1
    assert shell.rows("query", "SELECT count(*) AS n FROM prices") == [{"n": 2}]
    more = shell.rows("upload", "prices", "-", "--evolve", stdin=b'{"sku": "9", "stock": 1}\n')
    assert more[0]["columns"] == {"stock": "long"}
    declared = shell.rows("upload", "other", prices, "--schema", "sku:string,price:decimal(9,2)")
    assert declared[0]["columns"]["price"] == "decimal(9,2)"


GERMAN = """Bestell Nr;Betrag (EUR);am;Name
1;12,50;20.11.2026;Eva
2;1.234,50;21.11.2026;"a;b"
"""
COMMA_HINT = "got a string; the decimal separator seems to be a comma: give --decimal-separator ,"
AS_WRITTEN = ["--decimal-separator", ",", "--date-format", "%d.%m.%Y"]


@pytest.fixture
def orders(tmp_path: Path) -> str:
    file = tmp_path / "orders.csv"
    file.write_text(GERMAN)
    return str(file)


def test_headers_keep_their_names(shell: Shell, tmp_path: Path) -> None:
    csv, ndjson = tmp_path / "a.csv", tmp_path / "a.ndjson"
    csv.write_text("order id,amount (EUR)\n1,12.5\n2,3\n")
    ndjson.write_text('{"order id": 2, "amount (EUR)": 4}\n{"order id": 3, "new, here": "x"}\n')
    columns = {"order id": "long", "amount (EUR)": "double"}
    assert shell.rows("upload", "orders", str(csv))[0]["columns"] == columns
    assert shell.rows("upload", "orders", str(ndjson), "--evolve")[0]["columns"] == {"new, here": "string"}
    shell.rows("delete", "orders", "--where", '"order id" = 2 AND "amount (EUR)" = 3')
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"order id": [1, 4], "amount (EUR)": [9.0, 8.0]}), parquet)
    shell.rows("upsert", "orders", str(parquet), "--on", "order id")
    tsv = tmp_path / "b.tsv"
    tsv.write_text("order id\tamount (EUR)\tnew, here\n5\t1\ty\n")
    shell.rows("upload", "orders", str(tsv))
    found = shell.rows("query", 'SELECT "order id", "amount (EUR)" AS amount, "new, here" FROM orders ORDER BY 1')
    assert [tuple(row.values()) for row in found] == [
        (1, 9.0, None), (2, 4.0, None), (3, None, "x"), (4, 8.0, None), (5, 1.0, "y"),
    ]  # fmt: skip


def test_a_file_is_read_as_it_is_written(shell: Shell, orders: str) -> None:
    guessed = shell.run("upload", "texts", orders)
    assert "column Betrag (EUR) is text: it seems to have numbers with a decimal comma, which --dec" in guessed.output
    assert "column am is text: it seems to have dates such as '20.11.2026', which --date-format" in guessed.output
    unneeded = shell.run("upload", "texts", orders, "--date-format", "%d.%m.%Y")
    assert "date_format '%d.%m.%Y': no column has dates that are written so" in unneeded.output
    made = shell.rows("upload", "orders", orders, *AS_WRITTEN, "--rename", "Bestell Nr=id")
    assert made[0]["columns"] == {"id": "long", "Betrag (EUR)": "double", "am": "date", "Name": "string"}
    shell.rows("upsert", "orders", orders, "--on", "id", *AS_WRITTEN, "--rename", "Bestell Nr=id")
    assert shell.rows("query", 'SELECT id, "Betrag (EUR)" AS b, am, "Name" AS n FROM orders ORDER BY id') == [
        {"id": 1, "b": 12.5, "am": "2026-11-20", "n": "Eva"},
        {"id": 2, "b": 1234.5, "am": "2026-11-21", "n": "a;b"},
    ]


def test_errors_name_the_option_that_is_missing_or_wrong(shell: Shell, orders: str) -> None:
    shell.rows("upload", "orders", orders, *AS_WRITTEN, "--rename", "Bestell Nr=id")

    def refusal(*words: str) -> str:
        done = shell.run("upload", "orders", orders, *words)
        assert done.exit_code == 1
        return done.output

    named = ["--rename", "Bestell Nr=id"]
    assert f"row 1, column Betrag (EUR): expected a number (double), {COMMA_HINT}" in refusal(*named)
    assert "say how it is written with --date-format" in refusal(*named, "--decimal-separator", ",")
    assert "as in '11/20/2026'" in refusal(*named, "--decimal-separator", ",", "--date-format", "%m/%d/%Y")
    assert "column 'Bestell Nr' is not in the table" in refusal(*AS_WRITTEN)
    assert "rename: the file has no column 'Bestell': did you mean Bestell Nr?" in refusal("--rename", "Bestell=id")
    assert "rename: two columns would be called 'am'" in refusal("--rename", "Name=am")
    assert "delimiter: use one character" in refusal("--delimiter", ";;")
    assert "has 1 fields" in refusal("--delimiter", "|") or "is not in the table" in refusal("--delimiter", "|")
    json_lines = shell.run("upload", "orders", "-", "--delimiter", ";", stdin=b'{"id": 3}\n')
    assert "delimiter: leave it out, because the file is ndjson" in json_lines.output


def test_files_of_events_are_read_as_they_are_written(shell: Shell, tmp_path: Path) -> None:
    shell.rows("create", "sales", "--column", "amount:double", "--column", "on day:date")
    file = tmp_path / "sales.csv"
    file.write_text(
        "event_id;when;amount;day;note\n"
        "1;20.11.2026 10:00;12,50;20.11.2026;1,5\n"
        "2;20.11.2026 10:00;12.50;20.11.2026;x\n"
        "3;2026-11-20 10:00;1;20.11.2026;x\n"
        "4;20.11.2026 10:00;1;2026-11-20;x\n"
    )
    written = ["--timestamp-format", "%d.%m.%Y %H:%M", "--rename", "when=ts", "--rename", "day=on day"]
    (counts,) = shell.rows("ingest", "sales", str(file), *AS_WRITTEN, *written)
    assert (counts["stored"], counts["rejected"]) == (1, 3)
    (row,) = shell.rows("query", 'SELECT ts, amount, "on day" AS day, properties FROM sales')
    assert (row["ts"][:16].replace("T", " "), row["amount"], row["day"]) == ("2026-11-20 10:00", 12.5, "2026-11-20")
    assert row["properties"] == '{"note":"1,5"}'
    reasons = {each["reason"] for each in shell.rows("rejects", "list", "sales")}
    assert reasons == {
        "amount: expected a number with a decimal comma, whose points, if any, group its digits by three",
        "ts: expected timestamp_format '%d.%m.%Y %H:%M', as in '20.11.2026 13:14'",
        "on day: expected date_format '%d.%m.%Y', as in '20.11.2026'",
    }
    stored = shell.rows("upload", "sales", str(file), *AS_WRITTEN, *written)
    assert (stored[0]["duplicates"], stored[0]["stored"]) == (1, 0)
    posted = shell.run("ingest", "sales", "-", "--format", "csv", stdin=b"event_id;amount\n6;12,50\n")
    assert posted.exit_code == 1
    reasons = {each["reason"] for each in shell.rows("rejects", "list", "sales")}
    assert f"amount: expected a number (double), {COMMA_HINT} (decimal_separator)" in reasons
    lines = tmp_path / "more.ndjson"
    lines.write_text('{"event_id": "5", "day": "21.11.2026", "amount": 1}\n')
    (counts,) = shell.rows("ingest", "sales", str(lines), "--date-format", "%d.%m.%Y", "--rename", "day=on day")
    assert counts["stored"] == 1


def test_points_that_may_group_digits_are_refused_by_every_way_in(shell: Shell, tmp_path: Path) -> None:
    shell.rows("create", "sales", "--plain", "--column", "id:long", "--column", "sales:long")
    file = tmp_path / "sales.csv"
    file.write_text("id;sales\n1;1.000\n2;2.500\n")
    doubt = "row 1, column sales: '1.000' may be 1000 or 1: --decimal-separator says which it is, with , or ."
    for words in (["upload", "sales", str(file)], ["upsert", "sales", str(file), "--on", "id"]):
        refused = shell.run(*words)
        assert (refused.exit_code, doubt in refused.output) == (1, True)
    shell.rows("upsert", "sales", str(file), "--on", "id", "--decimal-separator", ",")
    assert shell.rows("query", "SELECT sales FROM sales ORDER BY id") == [{"sales": 1000}, {"sales": 2500}]


def test_of_several_files_the_one_that_is_refused_is_named(shell: Shell, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{each}.csv") for each in "abc"]
    for name, text in zip(names, ("id,n\n1,2\n", "id,n\n2,x\n", "id,n\n3,4\n"), strict=True):
        Path(name).write_text(text)
    refused = shell.run("upload", "t", *names)
    assert refused.exit_code == 1
    assert f"alluvia: {names[1]}: row 1, column n: expected a number (long), got a string" in refused.output
    assert f"stored: {names[0]}; not tried: {names[2]}" in refused.output
    assert shell.rows("query", "SELECT id FROM t") == [{"id": 1}]


def test_an_upsert_needs_a_key_in_each_row(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("name ;n\nA ;1\n;;\nB;2\n")
    shell.rows("upload", "t", str(file))
    noted = shell.run("upsert", "t", str(file), "--on", "name")
    assert (noted.exit_code, "row 1, column name: the key 'A ' has spaces around it" in noted.output) == (0, True)
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 2}]
    file.write_text("name;n\nB;3\n;4\n")
    refused = shell.run("upsert", "t", str(file), "--on", "name")
    assert (refused.exit_code, "row 2, column name: no value, but it is the key" in refused.output) == (1, True)
    assert shell.rows("query", "SELECT sum(n) AS n FROM t") == [{"n": 3}]


def test_csv_is_written_for_spreadsheets(shell: Shell, tmp_path: Path) -> None:
    shell.rows("create", "t")
    given = ["--decimal-separator", ",", "--bom"]
    shown = shell.run("query", "SELECT 1.5::DOUBLE AS n, 'a;b' AS t", "--format", "csv", *given[:2])
    assert shown.output.splitlines() == ["n;t", '1,5;"a;b"']
    file = tmp_path / "a.csv"
    shell.rows("export", "SELECT 1.5::DOUBLE AS n, 'é' AS t", str(file), *given)
    assert file.read_bytes() == "\ufeffn;t\r\n1,5;é\r\n".encode()
    shell.rows("upload", "back", str(file), *given[:2])
    assert shell.rows("query", "SELECT * FROM back") == [{"n": 1.5, "t": "é"}]
    refused = shell.run("query", "SELECT 1", *given)
    assert (refused.exit_code, "give --format csv, too" in refused.output) == (1, True)


def test_codes_are_refused_in_a_column_of_numbers_unless_it_is_declared(shell: Shell, tmp_path: Path) -> None:
    shell.rows("create", "towns", "--plain", "--column", "zip:long")
    file = tmp_path / "towns.csv"
    file.write_text("zip\n80331\n01067\n")
    why = "row 2, column zip: it may be a code, which a long would store as 1067: use a column of type string, or"
    for words in (["upload", "towns", str(file)], ["upsert", "towns", str(file), "--on", "zip"]):
        refused = shell.run(*words)
        assert (refused.exit_code, why in refused.output) == (1, True)
        wrong = shell.run(*words, "--schema", "zip:string")
        assert "schema: column zip is long in the table, not string" in wrong.output
        shell.rows(*words, "--schema", "zip:long")
    assert shell.rows("query", "SELECT zip FROM towns ORDER BY zip") == [{"zip": 1067}, {"zip": 80331}]
