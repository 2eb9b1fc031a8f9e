"""`->>` and `->` next to operators that DuckDB applies first are refused, with the parentheses to write."""

import duckdb
import pytest

from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references
from alluvia.errors import Invalid

_ARROWS_FIRST = duckdb.__version__ >= "2"
_READ_SINCE_2 = {"AND", "OR", "NOT", "="}
"""What DuckDB 2.0 applies after `->>`, as PostgreSQL does; `->` is still that of a lambda function."""


@pytest.mark.parametrize(
    ("expression", "written", "taken"),
    [
        ("event = 'x' AND f->>'k' = 'v'", "(f->>'k')", "AND"),
        ("event = 'x' OR t.f->>'k' LIKE 'v'", "(t.f->>'k')", "OR"),
        ("f->>'a' = 'b' AND f->>'c' = 'd'", "(f->>'c')", "AND"),
        ("NOT f->>'it''s' = 'v'", "(f->>'it''s')", "NOT"),
        ("n BETWEEN 1 AND 2 AND f->>'k' IS NULL", "(f->>'k')", "AND"),
        ("event = f->>'k'", "(f->>'k')", "="),
        ("2 * f->>'k'", "(f->>'k')", "*"),
        ("'id ' || f->>'k'", "(f->>'k')", "||"),
        ("f->>'k'::int", "(f->>'k')", "the cast"),
        ("f->>'k' * 2 + 1", "(f->>'k')", "+"),
        ("event = 'x' AND f->'k' = 'v'", "(f->'k')", "AND"),
        ("f->'k' = 'v'", "(f->'k')", "="),
        ("lower(f->>'k'::int)", "(f->>'k')", "the cast"),
        ("EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND t.f->>'k' = 'v')", "(t.f->>'k')", "AND"),
    ],
)
def test_a_field_that_would_be_one_of_something_else_is_refused(expression: str, written: str, taken: str) -> None:
    root = parse(f"SELECT 1 FROM t WHERE {expression}").root
    if _ARROWS_FIRST and taken in _READ_SINCE_2:
        if "->>" in written:
            find_references(root)
            return
        taken = "="
    with pytest.raises(Invalid) as refused:
        find_references(root)
    arrow = "->>" if "->>" in written else "->"
    message = f"{arrow} needs parentheses here: write {written}, because {taken} is applied before it"
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "expression",
    [
        "f->>'k' = 'v' AND event = 'x'",
        "(f->>'k')::int + 1 > 2 AND NOT (f->>'k') = 'v'",
        "f->'a'->>'b' IN ('v')",
        "f->>'k' || 'x' LIKE 'v'",
        "('{\"a\":' || f || '}')->>'a' = 'v'",
        "f->>('k' || n) = 'v'",
        "f->>(n + 1) = 'v'",
        "f->>'k'::varchar = 'v'",
        "list_filter(l, x -> 'a' = x) = l",
        "list_transform(l, x -> x->>'k') = l",
        "CASE WHEN event = 'x' THEN f->>'k' END = 'v'",
    ],
)
def test_fields_that_duckdb_reads_as_written_are_not(expression: str) -> None:
    find_references(parse(f"SELECT 1 FROM t WHERE {expression}").root)
