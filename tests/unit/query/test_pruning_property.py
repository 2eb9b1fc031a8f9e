"""Pruning never changes an answer.

Random conditions on values of every type, in some shapes of query, against the same over every file; and random nested
queries, in which names collide (`nested_queries`), against plain DuckDB.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import alluvia
from alluvia.delta.skipping.predicate import Unknown
from alluvia.engine.queries import derived
from alluvia.engine.queries.parse import Node
from alluvia.errors import Invalid
from alluvia.query import scans
from alluvia.query.engine import run
from tests.examples import examples, seeds_from
from tests.light_engines import light_engines
from tests.unit.query.nested_queries import Generator, Seen, build, compare

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("value", pa.float64()),
        ("single", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("naive", pa.timestamp("us")),
        ("place", pa.struct([("zip", pa.int32()), ("city", pa.string())])),
    ]
)
START = datetime(2023, 12, 28, tzinfo=UTC)
BIG = 2**53
FILES = 14


def rows_of_file(chance: random.Random, file: int) -> list[dict[str, Any]]:
    """Return rows close to one another, as in a file, with nulls, NaN, zeros of both signs and long texts between."""
    base = chance.choice([0, file, file, BIG - 1, -BIG])
    prefix = chance.choice(["", "a", "b", "é", "z" * 40, "\U0010ffff" * 33])
    special = chance.choice([[], [math.nan], [math.inf], [-math.inf], [0.0, -0.0]])
    return [_row(chance, file * 100 + at, base, prefix, special) for at in range(chance.randint(1, 6))]


def _row(chance: random.Random, number: int, base: int, prefix: str, special: list[float]) -> dict[str, Any]:
    moment = START + timedelta(
        days=number // 100 // 2, hours=chance.randint(0, 23), microseconds=chance.randint(0, 2000)
    )
    n = base + chance.randint(0, 3)
    place = chance.choice([None, {"zip": None, "city": None}, {"zip": n % 100, "city": prefix}])
    row = {
        "id": number,
        "n": n,
        "small": n % 100,
        "value": chance.choice([float(n), n + 0.1, *special]),
        "single": chance.choice([float(n % 100), n % 100 + 0.1, *special]),
        "price": Decimal(n % 1000) + Decimal(chance.randint(0, 99)) / 100,
        "name": prefix + chance.choice(["", "a", "ab", "b", "\ud7ff", "\ue000"]),
        "flag": chance.random() < 0.5,
        "day": moment.date(),
        "ts": moment,
        "naive": moment.replace(tzinfo=None),
        "place": place,
    }
    for column in row:
        if column != "id" and chance.random() < 0.1:
            row[column] = None
    return row


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    chance = random.Random(20240101)
    lake = alluvia.connect(str(tmp_path_factory.mktemp("lake")))
    for name, partition_by in (("a", ["day(ts)"]), ("b", ["flag"])):
        table = lake.create_table(name, SCHEMA, partition_by=partition_by)
        for file in range(FILES):
            table.append(pa.Table.from_pylist(rows_of_file(chance, file), SCHEMA))
        table.append(pa.Table.from_pylist([{"id": 9000}, {"id": 9001}], SCHEMA))
    return lake


NUMBERS = [
    *("0", "1", "3", "5.5", "5", "12", "0.1", "5.1", "3e0", "5.1e0", "0.1e0", "-1", "NULL", "'5'", "'5.1'", "1 + 2"),
    *(str(BIG), str(BIG + 1), f"{BIG}e0", f"{BIG - 1}.5", f"-{BIG}", "0.0", "-0.0", "7.25", "99", "true"),
    *("CAST('nan' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "CAST(5.1 AS FLOAT)", "CAST(7 AS SMALLINT)"),
    "CAST(3 AS DECIMAL(20, 10))",
]
LONG = "z" * 40
TEXTS = [
    *("'a'", "'ab'", "''", "'b'", "'é'", "'z'", f"'{LONG}'", f"'{LONG}b'", "'a' || 'b'", "NULL", "'\U0010ffff'"),
    "lower('A')",
]
TIMES = [
    *("'2023-12-28'", "'2023-12-29 05:00:00'", "DATE '2023-12-30'", "TIMESTAMP '2023-12-31 12:00:00'", "'2024-01-01'"),
    *("TIMESTAMPTZ '2024-01-01 02:00:00+02'", "DATE '2023-12-31' + INTERVAL 1 DAY", "now()", "NULL", "current_date"),
    *("TIMESTAMP '2023-12-30 10:00:00.001'", "CAST('infinity' AS TIMESTAMP)", "make_date(2024, 1, 2)"),
    "DATE '2024-01-02' - 1",
]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
TIME_OPERANDS = [
    *("{}", "CAST({} AS DATE)", "CAST({} AS TIMESTAMP)", "date_trunc('day', {})::DATE"),
    *(f"date_trunc('{unit}', {{}})" for unit in ("hour", "day", "week", "month")),
]
PATTERNS = ["'a%'", "'ab'", "'%b'", "'z%z'", f"'{'z' * 40}%'", "'a_'", "''", "'é%'", "'\U0010ffff%'"]


# Strategies are made once: making and checking them takes longer than drawing from them.
FAMILY = st.sampled_from(["number", "number", "text", "time", "time", "flag", "year", "null"])
FLAG = st.sampled_from(["flag", "flag = false", "flag <> true"])
ANY_COLUMN = st.sampled_from([*SCHEMA.names, "place.zip"])
NUMBER_COLUMN = st.sampled_from(["n", "small", "value", "single", "price", "place.zip"])
TEXT_COLUMN = st.sampled_from(["name", "place.city"])
TIME_COLUMN = st.sampled_from(["ts", "day", "naive"])
TIME_OPERAND = st.sampled_from(TIME_OPERANDS)
YEAR = st.sampled_from(["2023", "2024", "2025"])
NEGATION = st.sampled_from(["", "NOT "])
OPERATOR = st.sampled_from(OPERATORS)
PATTERN = st.sampled_from(PATTERNS)
FORM = st.sampled_from(["op", "op", "op", "flipped", "between", "in"])
CONSTANTS = {"number": st.sampled_from(NUMBERS), "text": st.sampled_from(TEXTS), "time": st.sampled_from(TIMES)}
LISTS = {family: st.lists(constants, min_size=1, max_size=3) for family, constants in CONSTANTS.items()}


@st.composite
def leaves(draw: st.DrawFn, alias: str) -> str:
    """Return a condition on one column."""
    family = draw(FAMILY)
    if family == "flag":
        return f"{alias}.{draw(FLAG)}"
    if family == "null":
        return f"{alias}.{draw(ANY_COLUMN)} IS {draw(NEGATION)}NULL"
    if family == "year":
        return f"year({alias}.{draw(TIME_COLUMN)}) {draw(OPERATOR)} {draw(YEAR)}"
    if family == "text":
        operand = f"{alias}.{draw(TEXT_COLUMN)}"
        if draw(st.booleans()):
            return f"{operand} {draw(NEGATION)}LIKE {draw(PATTERN)}"
    elif family == "time":
        operand = draw(TIME_OPERAND).format(f"{alias}.{draw(TIME_COLUMN)}")
    else:
        operand = f"{alias}.{draw(NUMBER_COLUMN)}"
    return _compared(draw, operand, family)


def _compared(draw: st.DrawFn, operand: str, family: str) -> str:
    constants = CONSTANTS[family]
    form, negation = draw(FORM), draw(NEGATION)
    if form == "between":
        return f"{operand} {negation}BETWEEN {draw(constants)} AND {draw(constants)}"
    if form == "in":
        return f"{operand} {negation}IN ({', '.join(draw(LISTS[family]))})"
    operator, constant = draw(OPERATOR), draw(constants)
    return f"{operand} {operator} {constant}" if form == "op" else f"{constant} {operator} {operand}"


def conditions(*aliases: str) -> st.SearchStrategy[str]:
    """Return conditions on the tables of some aliases, nested."""
    return st.recursive(
        st.one_of(*(leaves(alias) for alias in aliases)),
        lambda inner: st.one_of(
            inner.map(lambda one: f"NOT ({one})"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        ),
        max_leaves=4,
    )


SHAPES = [
    "SELECT x.id FROM {x} x WHERE {cx}",
    "SELECT x.id FROM (SELECT * FROM {x}) x WHERE {cx}",
    "WITH x AS (SELECT DISTINCT * FROM {x}) SELECT x.id FROM x WHERE {cx}",
    "SELECT x.id, y.id FROM {x} x JOIN {y} y ON x.small = y.small AND {con} WHERE {cxy}",
    "SELECT x.id, y.id FROM {x} x LEFT JOIN {y} y ON x.small = y.small AND {con} WHERE {cxy}",
    "SELECT x.id, y.id FROM {x} x RIGHT JOIN {y} y ON x.small = y.small AND {con} WHERE {cxy}",
    "SELECT x.id, y.id FROM {x} x FULL JOIN {y} y ON x.small = y.small AND x.day = y.day WHERE {cxy}",
    "SELECT x.id FROM {x} x SEMI JOIN {y} y ON x.small = y.small AND {con} WHERE {cx}",
    "SELECT x.id FROM {x} x ANTI JOIN {y} y ON x.small = y.small AND {con} WHERE {cx}",
    "SELECT x.id, y.id FROM {x} x ASOF JOIN {y} y ON x.ts >= y.ts WHERE {cxy}",
    "SELECT x.id FROM {x} x WHERE {cx} AND EXISTS (FROM {y} y WHERE y.small = x.small AND {cxy})",
    "SELECT x.id FROM {x} x WHERE NOT ({cx}) OR x.id IN (SELECT y.id FROM {y} y WHERE {cy})",
    "SELECT x.flag, count(*), max(x.id) FROM {x} x WHERE {cx} GROUP BY ALL",
    "SELECT x.id FROM {x} x WHERE {cx} EXCEPT SELECT y.id FROM {y} y WHERE {cy}",
    "SELECT x.id, y.id FROM (FROM {x}) x LEFT JOIN (FROM {y} ORDER BY id) y ON x.n = y.n AND {con} WHERE {cxy}",
]


TABLE, ON_X, ON_Y, ON_BOTH = st.sampled_from("ab"), conditions("x"), conditions("y"), conditions("x", "y")
QUERIES = st.builds(str.format, st.sampled_from(SHAPES), x=TABLE, y=TABLE, cx=ON_X, cy=ON_Y, con=ON_BOTH, cxy=ON_BOTH)


REFUSALS = re.compile("an explicit cast is required|Conversion Error|Out of Range Error|does not fit")
"""What is said of the few queries that compare what cannot be compared, or compute what has no value."""


def check(lake: alluvia.Lake, query: str) -> bool:
    """Compare a query's answer with that over every file; where that fails, pruning may hide the failure: False."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "table_predicate", lambda *_: Unknown())
        try:
            expected = run(lake.catalog, query).read_all()
        except Invalid as error:
            if REFUSALS.search(str(error)):
                return False
            raise
    found = run(lake.catalog, query).read_all()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), query
    return True


@given(query=QUERIES)
@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck))
def test_pruning_never_changes_an_answer(lake: alluvia.Lake, query: str) -> None:
    check(lake, query)


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(2))
def test_pruning_never_changes_an_answer_at_length(lake: alluvia.Lake, portion: int) -> None:
    """With light engines: the test above asks processes, as users do."""
    answered = 0

    @seed(portion)
    @given(query=QUERIES)
    @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
    def never(query: str) -> None:
        nonlocal answered
        answered += check(lake, query)

    with light_engines():
        never()
    assert answered > examples(54)


def test_the_conditions_of_these_tests_do_prune(lake: alluvia.Lake) -> None:
    """So that the property above says something: simple conditions of each family leave files out."""
    simple = [
        "x.n < 3",
        "x.single <= 1",
        "x.price = 1000000",
        "x.name LIKE 'b%'",
        "x.ts < '2023-12-30'",
        "x.day::DATE = '2023-12-29'",
    ]
    for condition in simple:
        with run(lake.catalog, f"FROM a x WHERE {condition}") as result:
            assert result.tables[0].files_pruned > 0
    with run(lake.catalog, "FROM b x WHERE x.flag") as result:
        assert result.tables[0].files_pruned >= FILES // 3


def test_days_are_those_of_the_data() -> None:
    assert START.date() == date(2023, 12, 28)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[alluvia.Lake, duckdb.DuckDBPyConnection]:
    return build(str(tmp_path_factory.mktemp("nested")))


@pytest.mark.parametrize(
    ("seeds", "engines"),
    [
        pytest.param(range(100), nullcontext, id="few"),
        pytest.param(seeds_from(100, 200), light_engines, id="many", marks=pytest.mark.slow),
    ],
)
def test_nested_queries_answer_as_plain_duckdb_does(
    both: tuple[alluvia.Lake, duckdb.DuckDBPyConnection],
    seeds: range,
    engines: Callable[[], AbstractContextManager[None]],
) -> None:
    seen = Seen()
    with engines():
        for seed in seeds:
            compare(*both, Generator(seed).query(), seen)
    assert seen.valid > len(seeds) / 2
    assert seen.valid + seen.refused + seen.disagreeing + seen.failing == len(seeds)
    assert seen.disagreeing + seen.failing <= 1 + len(seeds) // 1000
    assert seen.pruning > seen.valid / 2
    assert seen.files_pruned > 3 * seen.valid


def _stars_without_the_unknown(patch: pytest.MonkeyPatch) -> None:
    """Take the columns of a star for those of the entries that are known, as if the others had none."""
    whole = derived.Columns._query

    def query(self: derived.Columns, node: Node) -> derived.Shown | None:
        return whole(self, node) if derived.is_row_by_row(node) else None

    def join(self: derived.Columns, node: Node) -> derived.Shown:
        sides = [self.of_entry(node[side]) or derived.Shown(()) for side in ("left", "right")]
        return derived.Shown(sides[0].columns + sides[1].columns, not node["using_columns"])

    patch.setattr(derived.Columns, "_query", query)
    patch.setattr(derived.Columns, "_join", join)


def _names_that_are_never_renamed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derived, "_may_be_renamed", lambda *_: False)


def _names_that_mean_the_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derived.Shown, "certain", lambda self: dict(self.columns))


@pytest.mark.parametrize(
    ("mutate", "seed"),
    [(_stars_without_the_unknown, 496), (_names_that_are_never_renamed, 289), (_names_that_mean_the_last, 289)],
)
def test_nested_queries_find_each_way_of_confusing_names(
    both: tuple[alluvia.Lake, duckdb.DuckDBPyConnection],
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    seed: int,
) -> None:
    """Each was a bug: with it back, the generator's query of that seed gets another answer."""
    query = Generator(seed).query()
    compare(*both, query, Seen())
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match="SELECT"):
        compare(*both, query, Seen())
