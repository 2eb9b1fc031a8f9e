"""The syntax of queries is cached by their text, and nothing else that a query depends on is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.engine.queries.parse import Statement, analyse, parse
from alluvia.errors import Invalid
from alluvia.query import known_texts
from alluvia.query.engine import run

TEXT = "SELECT n, v FROM t ORDER BY n"


def test_one_text_is_sent_for_many_tables_and_views(tmp_path: Path) -> None:
    lakes = [alluvia.connect(f"file://{tmp_path / str(number)}") for number in range(3)]
    for number, lake in enumerate(lakes[:2]):
        rows = pa.table({"v": [number], "n": [1]} if number else {"n": [1], "v": ["text"]})
        lake.create_table("t", rows.schema).append(rows)
    lakes[2].create_table("base", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
    lakes[2].sql("CREATE VIEW t AS SELECT n, n * 10 AS v FROM base")
    for _ in range(2):
        assert [lake.sql(TEXT).to_pylist() for lake in lakes] == [
            [{"n": 1, "v": "text"}],
            [{"n": 1, "v": 1}],
            [{"n": 1, "v": 10}],
        ]
    lakes[0].sql("ALTER TABLE t DROP COLUMN v")
    with pytest.raises(Invalid, match='"v" not found'):
        lakes[0].sql(TEXT)


def test_one_text_is_sent_with_and_without_values(tmp_path: Path) -> None:
    lake = alluvia.connect(f"file://{tmp_path}")
    rows = pa.table({"n": [1, 2, 3]})
    lake.create_table("t", rows.schema).append(rows)
    text = "SELECT n FROM t WHERE n > $least"
    for least in (1, 2):
        assert len(run(lake.catalog, text, parameters={"least": least}).read_all()) == 3 - least
        with pytest.raises(Invalid, match="has no value"):
            lake.sql(text)


def put_over(statement: Statement) -> str:
    references = known_texts.references_of(statement, parameters=False).tables
    return known_texts.rewritten(statement, dict.fromkeys(references, "scan_0"), analyse, ()).text


def test_queries_of_views_evict_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of a view is expanded anew each time."""
    known = known_texts.parsed("SELECT n FROM kept", analyse)
    text = put_over(known)
    for _ in range(200):
        put_over(parse("SELECT n FROM (SELECT n FROM base)"))
    monkeypatch.delattr(known_texts, "rewrite")
    monkeypatch.delattr(known_texts, "find_references")
    assert put_over(known) == text


def test_the_total_length_of_cached_texts_is_limited() -> None:
    long = " " * (known_texts.TEXT_KEPT_CHARS_MAX - 100)
    texts = [f"SELECT {number} AS n{long}FROM t" for number in range(2 * known_texts.KEPT_CHARS_MAX // len(long))]
    for text in texts:
        known_texts.parsed(text, analyse)
    kept = [text for text in texts if known_texts.known_statement(text) is not None]
    assert kept == texts[len(texts) - len(kept) :]
    assert sum(map(len, kept)) <= known_texts.KEPT_CHARS_MAX < sum(map(len, kept)) + len(texts[0]) + 1
