"""Versions of tables, typed as in other systems."""

from __future__ import annotations

import pytest

from alluvia.expressions.parse import parse
from alluvia.expressions.references import At, find_references
from alluvia.expressions.time_travel import in_our_form

_HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "at", "alias"),
    [
        ("FROM t AT (OFFSET => '1 hour ago')", At(ago_ms=_HOUR_MS), "t"),
        ("FROM t AT(OFFSET=>-3600) AS e WHERE a", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t AS e AT (OFFSET => '60 minutes')", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t e AT (offset := '1 h') JOIN range(3) ON true", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t AT /* ü */ (OFFSET => '1 hour ago') -- and so on", At(ago_ms=_HOUR_MS), "t"),
        ("SELECT * FROM range(2), t(offset => '1 hour ago') AS e", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t AT (VERSION => 3)", At(version=3), "t"),
        ("FROM t AS e AT (VERSION => 3)", At(version=3), "e"),
        ("FROM t AT (VERSION => 3) AS e", At(version=3), "e"),
        ("FROM t VERSION AS OF 3", At(version=3), "t"),
        ("FROM t VERSION AS OF '3' e", At(version=3), "e"),
        ('FROM "T"VERSION AS OF 3', At(version=3), "t"),
        ("FROM t for system_version as of 3 AS e WHERE true", At(version=3), "e"),
        ("FROM (SELECT * FROM t VERSION AS OF 3)", At(version=3), "t"),
    ],
)
def test_a_version_is_read_in_every_form(text: str, at: At, alias: str) -> None:
    (found,) = find_references(parse(text).root).tables
    assert (found.table, found.at, found.alias) == ("t", at, alias)


@pytest.mark.parametrize(
    "text",
    [
        "FROM t AT (TIMESTAMP => '2026-01-31') AS e",
        "FROM t TIMESTAMP AS OF '2026-01-31'",
        "FROM t FOR SYSTEM_TIME AS OF '2026-01-31' AS e",
        "FROM t(timestamp => '2026-01-31')",
        "FROM t AT (TIMESTAMP => now() - INTERVAL 1 HOUR) e",
    ],
)
def test_a_moment_is_read_in_every_form(text: str) -> None:
    (found,) = find_references(parse(text).root).tables
    assert (found.table, found.at.version, found.at.moment is not None) == ("t", None, True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'FROM t VERSION AS OF 3', \"from t at (offset => 1)\", $$FROM t AT (OFFSET => 1)$$ FROM t",
        "SELECT E'it\\'s FROM t AT (OFFSET => 1)' FROM t",
        "SELECT 1 -- FROM t VERSION AS OF 3",
        "/* FROM t AT (OFFSET => 1) */ SELECT 1",
        "SELECT x -> y AS of, struct_pack(at := 1) FROM t",
        "FROM read_csv('x', offset => 1)",
        "FROM t AT (TIMESTAMP => '2026-01-31') WHERE x = 1",
    ],
)
def test_what_duckdb_takes_stays_as_it_is(text: str) -> None:
    assert in_our_form(text) == text


def test_positions_stay_what_they_are() -> None:
    text = "SELECT 'ü' FROM tü AS ë AT (OFFSET => '1 hour ago') WHERE ë.x = 1"
    found = in_our_form(text)
    assert len(found.encode()) == len(text.encode())
    assert found.encode().index(b"WHERE") == text.encode().index(b"WHERE")
