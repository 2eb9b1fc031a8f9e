"""Text within bytes, such as `raw` of rejects, is found by `decode`, and nothing else seems to search in it."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.errors import Invalid


@pytest.fixture(scope="module")
def lake() -> alluvia.Lake:
    lake = alluvia.connect("memory://bytes_as_text")
    lake["orders"].ingest([{"event_id": "o-1", "event": "a"}, {"event_id": "o-1", "event": "b"}])
    lake.sql("CREATE TABLE plain (raw STRING, code BLOB)")
    return lake


def test_decode_finds_text(lake: alluvia.Lake) -> None:
    condition = """decode(raw) LIKE '%"o-1"%'"""
    assert lake.sql(f"SELECT count(*) AS n FROM orders._rejects WHERE {condition}")["n"].to_pylist() == [1]
    assert len(lake["orders/_rejects"].to_arrow(where=condition)) == 1


@pytest.mark.parametrize("condition", ["raw LIKE '%o-1%'", "contains(raw, 'o-1')"])
def test_a_function_of_text_names_decode(lake: alluvia.Lake, condition: str) -> None:
    for read in (lambda: lake.sql(f"FROM orders._rejects WHERE {condition}"), lambda: _where(lake, condition)):
        with pytest.raises(Invalid, match=r"decode\(raw\) LIKE"):
            read()


def test_a_cast_to_text_is_refused(lake: alluvia.Lake) -> None:
    condition = "raw::VARCHAR LIKE '%o-1%'"
    for read in (lambda: lake.sql(f"FROM orders._rejects AS r WHERE r.{condition}"), lambda: _where(lake, condition)):
        with pytest.raises(Invalid, match=r"column raw has bytes, and a cast to text writes \\x22 for a quote"):
            read()
    assert lake.sql("SELECT raw::VARCHAR AS r, code::VARCHAR AS c FROM plain").num_rows == 0
    with pytest.raises(Invalid, match=r"write decode\(code\)"):
        lake["plain"].delete("code::VARCHAR = 'a'")


def _where(lake: alluvia.Lake, condition: str) -> None:
    lake["orders/_rejects"].to_arrow(where=condition)
