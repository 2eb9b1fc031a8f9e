"""Tests of declarations: given rows of the sources, expected rows of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid
from alluvia.pipelines.unit_tests import DeclarationTestResult

DECLARED = """CREATE TABLE copy (CONSTRAINT named EXPECT (visitor <> '') ON VIOLATION QUARANTINE) AS
SELECT visitor, n FROM events WHERE n > 0;
CREATE TABLE totals KEY (visitor) AS SELECT visitor, sum(n) AS s FROM copy GROUP BY visitor;"""


def results(lake: Lake, folder: Path, *tests: str) -> list[DeclarationTestResult]:
    (folder / "tests").mkdir()
    (folder / "a.sql").write_text(DECLARED)
    (folder / "tests" / "a.sql").write_text(";\n".join(tests))
    return lake.pipeline(folder).test()


def test_given_rows_make_the_expected_ones(lake: Lake, events: Table, tmp_path: Path) -> None:
    copied, summed = results(
        lake,
        tmp_path,
        """TEST copy 'nameless rows are set aside'
           GIVEN events AS (SELECT * FROM (VALUES ('a', 1), ('', 2), ('b', -1)) AS t(visitor, n))
           EXPECT (SELECT 1 AS n) EXPECT QUARANTINE (SELECT '' AS visitor, ['named'] AS _failed)""",
        """TEST totals 'rows of a visitor are summed'
           GIVEN copy AS (SELECT 'a' AS visitor, unnest([1, 2]) AS n)
           EXPECT (SELECT 'a' AS visitor, 3 AS s)""",
    )
    assert (copied.passed, copied.error) == (True, None)
    assert (summed.passed, summed.error) == (True, None)
    assert lake.tables() == ["events"]


def test_a_difference_is_shown_row_by_row(lake: Lake, events: Table, tmp_path: Path) -> None:
    (result,) = results(
        lake,
        tmp_path,
        """TEST copy 'wrong' GIVEN events AS (SELECT 'a' AS visitor, unnest([1, 1, 2]) AS n)
           EXPECT (SELECT 'a' AS visitor, unnest([1, 2, 4]) AS n)""",
    )
    assert not result.passed
    assert (result.missing, result.unexpected) == ([{"visitor": "a", "n": 4}], [{"visitor": "a", "n": 1}])


def test_a_source_without_given_rows_is_empty(lake: Lake, events: Table, tmp_path: Path) -> None:
    (result,) = results(lake, tmp_path, "TEST copy 'nothing' EXPECT (SELECT 'a' AS visitor WHERE false)")
    assert (result.passed, result.error) == (True, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("TEST coppy 'x' EXPECT (SELECT 1)", "declares no table 'coppy': did you mean copy?"),
        ("TEST copy 'x' GIVEN users AS (SELECT 1) EXPECT (SELECT 1 AS n)", "GIVEN users: table copy does not read it"),
        ("TEST copy 'x' GIVEN events AS (SELECT 1 AS m) EXPECT (SELECT 1 AS n)", "GIVEN events: it has no column m"),
        ("TEST copy 'x' GIVEN events AS (SELECT 'y' AS n) EXPECT (SELECT 1 AS n)", "GIVEN events: column n is int64"),
        ("TEST copy 'x' EXPECT (SELECT 1 AS m)", "EXPECT: table copy has no column m"),
        ("TEST totals 'x' EXPECT (SELECT 1 AS s)", "the columns of copy are not known, so give rows of it"),
    ],
)
def test_a_test_that_cannot_run_says_why(lake: Lake, events: Table, tmp_path: Path, text: str, says: str) -> None:
    (result,) = results(lake, tmp_path, text)
    assert not result.passed
    assert says in str(result.error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("TEST copy EXPECT (SELECT 1)", r"tests/a\.sql:1: .*expected what the test shows as text in single quotes"),
        ("TEST copy 'x'", r"tests/a\.sql:1: .*expected EXPECT"),
        ("CREATE TABLE t AS SELECT 1", r"tests/a\.sql:1: expected TEST, got CREATE"),
        ("TEST t 'x' GIVEN a AS (SELECT 1) GIVEN a AS (SELECT 2) EXPECT (SELECT 1)", "GIVEN a occurs twice"),
    ],
)
def test_a_text_that_is_no_test_is_refused(lake: Lake, tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        results(lake, tmp_path, text)


def test_a_file_that_is_not_utf_8_is_named(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE TABLE t AS SELECT id FROM events")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.sql").write_bytes("TEST t 'é' EXPECT (SELECT 1 AS id)".encode("latin-1"))
    with pytest.raises(Invalid, match=r"tests/a\.sql is not text in UTF-8"):
        lake.pipeline(tmp_path)
