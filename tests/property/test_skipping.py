"""Pruning never drops a file that holds a matching row, whatever the rows, the condition, and who wrote the file."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.partition import split
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Operator, Or, Predicate, Unknown
from alluvia.delta.skipping.pruning import prune
from alluvia.delta.statistics.written import cut_upwards, file_statistics
from alluvia.store import MemoryStore
from tests.examples import examples
from tests.judges import canonical

Row = dict[str, Any]
ZERO = datetime(2024, 5, 6, 12)
MICROSECONDS = st.sampled_from([0, 1, 499, 999, 1000, 1001, 1999, -1, -999, -1001]) | st.integers(-(10**15), 10**15)
LOCAL = MICROSECONDS.map(lambda us: ZERO + timedelta(microseconds=us)) | st.sampled_from([datetime.min, datetime.max])  # noqa: DTZ901
CHARACTERS = st.sampled_from([*"ab", "\U0010ffff", "\U0010fffe", "\ud7ff", "\ue000", "\uffff", "é", "\0", '"', "\\"])
TEXT = st.builds(
    lambda start, middle, end: start + "x" * middle + end,
    st.text(CHARACTERS, max_size=2), st.sampled_from([0, 29, 30, 31, 32, 33]), st.text(CHARACTERS, max_size=4),
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    "small": st.integers(-128, 127),
    "f": st.sampled_from([0.0, -0.0, 1.5, -1.5, 5e-324, math.nan, math.inf, -math.inf]) | st.floats(),
    "single": st.floats(width=32),
    "s": TEXT,
    "d": st.decimals(min_value=-(10**8), max_value=10**8, places=3),
    "ts": LOCAL.map(lambda moment: moment.replace(tzinfo=UTC)),
    "local": LOCAL,
    "day": st.dates() | st.sampled_from([date.min, date.max]),
    "b": st.booleans(),
    "raw": st.binary(max_size=3),
    "p": st.sampled_from(["a", "b", "a b/%é", "\U0010ffff"]),
}
SCHEMA = pa.schema(
    [
        ("i", pa.int64()), ("small", pa.int8()), ("f", pa.float64()), ("single", pa.float32()), ("s", pa.string()),
        ("d", pa.decimal128(14, 3)), ("ts", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us")),
        ("day", pa.date32()), ("b", pa.bool_()), ("raw", pa.binary()), ("p", pa.string()),
        ("st", pa.struct([("i", pa.int64()), ("s", pa.string())])),
        ("list", pa.list_(pa.field("element", pa.int64()))),
    ]
)  # fmt: skip
OPERATORS: list[Operator] = ["=", "!=", "<", "<=", ">", ">="]
COLUMNS = [(name,) for name in VALUES] + [("st", "i"), ("st", "s")]


# Strategies are made once: making and checking them takes longer than drawing from them.
PLACES = st.none() | st.fixed_dictionaries({"i": st.none() | VALUES["i"], "s": st.none() | TEXT})
ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {name: st.none() | each for name, each in VALUES.items()} | {"st": PLACES}
)
KINDS = st.sampled_from(["compare", "compare", "in", "null", "not null", "and", "or", "unknown"])
A_COLUMN = st.sampled_from(COLUMNS)
AN_OPERATOR = st.sampled_from(OPERATORS)
OUTER = st.booleans()


def constants(column: tuple[str, ...], pool: list[Row]) -> st.SearchStrategy[Any]:
    """Constants in the column's terms; often one that stands in a row, or next to it."""
    known = [found for row in pool if (found := value(row, column)) is not None]
    fresh = VALUES[column[-1]]
    return st.sampled_from(known) | fresh if known else fresh


@st.composite
def predicates(draw: st.DrawFn, pool: list[Row], depth: int = 2) -> Predicate:
    kind = draw(KINDS)
    if depth and kind in ("and", "or"):
        children = tuple(draw(st.lists(predicates(pool, depth - 1), max_size=3)))
        return And(children) if kind == "and" else Or(children)
    column = draw(A_COLUMN)
    if kind == "in":
        return In(column, tuple(draw(st.lists(constants(column, pool), max_size=3))))
    if kind == "null":
        return IsNull(column[:1] if draw(OUTER) else column)
    if kind == "not null":
        return IsNotNull(column[:1] if draw(OUTER) else column)
    if kind == "unknown":
        return Unknown()
    operator: Operator = draw(AN_OPERATOR)
    return Comparison(column, operator, draw(constants(column, pool)))


def value(row: Row, column: tuple[str, ...]) -> Any:
    found: Any = row
    for name in column:
        found = None if found is None else found[name]
    return found


def order(value_: Any) -> Any:
    """Order as SQL does here: NaN is equal to itself and above every number; text by code points."""
    return (math.isnan(value_), 0.0 if math.isnan(value_) else value_) if isinstance(value_, float) else value_


def matches(row: Row, predicate: Predicate) -> bool:
    match predicate:
        case And(children):
            return all(matches(row, child) for child in children)
        case Or(children):
            return any(matches(row, child) for child in children)
        case In(column, values):
            return any(matches(row, Comparison(column, "=", each)) for each in values)
        case IsNull(column):
            return value(row, column) is None
        case IsNotNull(column):
            return value(row, column) is not None
        case Comparison(column, operator, constant):
            found = value(row, column)
            if found is None:
                return False
            left, right = order(found), order(constant)
            verdicts: dict[Operator, bool] = {"=": left == right, "!=": left != right, "<": left < right,
                                              "<=": left <= right, ">": left > right, ">=": left >= right}  # fmt: skip
            return verdicts[operator]
        case Unknown():
            return True


def as_other_writers_do(stats: str) -> str:
    """Cut maxima as others do: times to the millisecond downwards, text at 32 characters without a tie-breaker."""
    whole = orjson.loads(stats)
    return orjson.dumps(whole | {"tightBounds": True, "maxValues": _cut(whole["maxValues"])}).decode()


def _cut(maxima: Any) -> Any:
    if isinstance(maxima, dict):
        return {name: _cut(each) for name, each in maxima.items()}
    return maxima[:32] if isinstance(maxima, str) and not maxima.endswith("Z") else maxima


@settings(max_examples=examples(80))
@given(st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_no_file_with_a_matching_row_is_pruned(groups: list[list[Row]], data: st.DataObject) -> None:
    predicate = data.draw(predicates([row for group in groups for row in group]), label="predicate")
    partitioned = data.draw(st.booleans(), label="partitioned by p")
    cut = data.draw(st.booleans(), label="cut as other writers do")
    indexed = data.draw(st.sampled_from([32, 32, 3, 0]), label="indexed columns")
    spec = parse_spec(["p"] if partitioned else [], SCHEMA)
    files: list[tuple[AddFile, list[Row]]] = []
    for group in groups:
        for partition, part in split(pa.Table.from_pylist(group, schema=SCHEMA), spec):
            stats = file_statistics(part, indexed)
            add = AddFile(f"f{len(files)}", partition.values, 1, 1, data_change=True,
                          stats=as_other_writers_do(stats) if cut else stats)  # fmt: skip
            members = [row for row in group if not partitioned or row["p"] == partition.values["p"]]
            assert len(members) == len(part)
            files.append((add, members))
    kept = {file.path for file in prune([add for add, _ in files], predicate, SCHEMA, spec.identity_columns)}
    for add, members in files:
        if any(matches(row, predicate) for row in members):
            assert add.path in kept


@settings(max_examples=examples(30))
@given(st.lists(ROWS, min_size=2, max_size=6), st.data())
def test_no_merged_file_with_a_matching_row_is_pruned(pool: list[Row], data: st.DataObject) -> None:
    """The statistics of a merged file come from DuckDB; its rows are those of its parts."""
    clock = ManualClock()
    schema = pa.schema([field for field in SCHEMA if field.name != "local"])
    table = Lake(MemoryStore("m", clock), clock).create_table("t", schema, partition_by=["p"])
    plain = [{name: each for name, each in row.items() if name != "local"} | {"p": "a"} for row in pool]
    for half in (plain[::2], plain[1::2]):
        table.append(pa.Table.from_pylist(half, schema=schema))
    before = canonical(table.scan().read_all())
    table.optimize()
    snapshot = table.snapshot()
    assert canonical(table.scan().read_all()) == before
    (merged,) = snapshot.files
    assert merged.num_records == len(pool)
    for _ in range(10):
        predicate = data.draw(predicates([row | {"local": None} for row in plain]), label="predicate")
        if any(matches(row | {"local": None}, predicate) for row in plain):
            assert Scan(snapshot, predicate).files == [merged]


@given(TEXT, TEXT)
def test_a_cut_maximum_is_at_or_above_every_text_with_its_start(text: str, end: str) -> None:
    cut = cut_upwards(text)
    assert cut >= text
    assert cut.encode() >= text.encode()
    assert len(text) <= 32 or cut.startswith(text[:32])


@given(st.lists(st.none() | VALUES["d"], min_size=1, max_size=5))
def test_decimal_bounds_are_exact(values: list[Decimal | None]) -> None:
    table = pa.table({"d": pa.array(values, pa.decimal128(14, 3))})
    parsed = json.loads(file_statistics(table), parse_float=Decimal)
    present = [each for each in values if each is not None]
    if present:
        assert Decimal(parsed["minValues"]["d"]) == min(present)
        assert Decimal(parsed["maxValues"]["d"]) == max(present)
    else:
        assert parsed["minValues"] == {}
