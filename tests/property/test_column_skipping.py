"""Judging many files by columns gives the verdicts of judging them one by one, whoever wrote the statistics."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.delta.log.actions import AddFile, Metadata, Protocol
from alluvia.delta.log.checkpoints.reader import read_checkpoint
from alluvia.delta.log.checkpoints.writer import Form, write_checkpoint
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.files.action_rows import ActionRows, LogRows
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.replay import replay
from alluvia.delta.skipping.column_verdicts import matching
from alluvia.delta.skipping.predicate import Comparison, In, IsNotNull, IsNull, Operator, Predicate, Unknown
from alluvia.delta.skipping.pruning import prune
from alluvia.delta.skipping.verdicts import FileStatistics, can_match, needs_exact
from alluvia.delta.statistics.checkpoint_form import CheckpointForm
from alluvia.delta.statistics.written import file_statistics
from tests.examples import examples
from tests.property.test_skipping import AN_OPERATOR, COLUMNS, ROWS, SCHEMA, VALUES, as_other_writers_do, predicates

ODD = st.sampled_from(
    [None, True, 0, -1, 127, 128, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**70, 1.0, 1.5, -0.0,
     0.1, 1e39, 1e308, "", "5", "NaN", "x" * 32, "\U0010ffff" * 33, "2024-05-06", "2024-05-06T12:00:00", "20240506",
     "2024-05-06T12:00:00.000Z", "2024-05-06 12:00:00.123456+05:30", "2024-05-06T12:00:00.1234567Z", "0000-01-01",
     "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999999Z", "10000-01-01", [], {},
     {"i": 3, "s": "a"}, {"i": "3"}, [1], "1.25", "1.2345", 123456789012, "1e2"]
)  # fmt: skip
CONSTANTS = st.one_of(*VALUES.values(), st.integers(), st.booleans(), st.decimals(allow_nan=True), st.text(max_size=2))
NAMES = [*VALUES, "st", "list", "none"]
GROUPS = {group: st.lists(st.sampled_from(NAMES), max_size=4) for group in ("minValues", "maxValues", "nullCount")}
ONE_IN_TEN = st.integers(0, 9).map(lambda drawn: drawn == 0)
COUNTS = st.sampled_from([0, 1, 3, 127, 128]) | ODD
TIGHT = st.booleans() | ODD
INDENTS = st.sampled_from([None, None, 1])
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


@st.composite
def odd_statistics(draw: st.DrawFn) -> str:
    """Statistics of a writer that knows little of types."""
    whole: dict[str, Any] = {}
    for group, some in GROUPS.items():
        names = draw(some)
        whole[group] = draw(ODD) if draw(ONE_IN_TEN) else {name: draw(ODD) for name in names}
    if draw(st.booleans()):
        whole["numRecords"] = draw(COUNTS)
    if draw(st.booleans()):
        whole["tightBounds"] = draw(TIGHT)
    return json.dumps(whole, indent=draw(INDENTS))


TEXTS = st.none() | odd_statistics() | st.sampled_from(["", "{", "[]", "5", "null", '{"numRecords":NaN}', "\n", "{}{}"])


# Made once, as in `test_skipping`.
FEW_ROWS = st.lists(ROWS, min_size=1, max_size=3)
INDEXED = st.sampled_from([32, 32, 3, 0])
WRITERS: st.SearchStrategy[Any] = st.sampled_from([str, str, as_other_writers_do]) | TEXTS
PARTITIONS = st.none() | VALUES["p"] | st.just("")
FILE_NAMES = st.text("abc%/ :", min_size=1, max_size=12)
VECTORS = st.sampled_from([None, None, VECTOR])


@st.composite
def adds(draw: st.DrawFn, partitioned: bool) -> AddFile:
    group = draw(FEW_ROWS)
    table = pa.Table.from_pylist(group, schema=SCHEMA)
    stats = file_statistics(table.drop_columns(["p"]) if partitioned else table, draw(INDEXED))
    writer = draw(WRITERS)
    text = writer(stats) if callable(writer) else writer
    values = {"p": draw(PARTITIONS)} if partitioned else {}
    path = draw(FILE_NAMES)
    return AddFile(path, values, 1, 1, data_change=True, stats=text, deletion_vector=draw(VECTORS))


ANY_COLUMN = st.sampled_from([*COLUMNS, ("st",), ("list",), ("none",), ("st", "none")])
CONDITIONS = st.sampled_from(["compare", "compare", "in", "null", "not null"])
LISTS = {name: st.lists(VALUES.get(name, CONSTANTS), max_size=12) for name in NAMES}


@st.composite
def conditions(draw: st.DrawFn) -> Predicate:
    """Conditions with constants of any type, and long lists."""
    column = draw(ANY_COLUMN)
    kind = draw(CONDITIONS)
    if kind == "compare":
        operator: Operator = draw(AN_OPERATOR)
        return Comparison(column, operator, draw(CONSTANTS))
    if kind == "in":
        return In(column, tuple(draw(LISTS[column[0]])))
    return IsNull(column) if kind == "null" else IsNotNull(column)


FILES = {
    partitioned: st.lists(adds(partitioned), min_size=1, max_size=5, unique_by=lambda add: add.key)
    for partitioned in (False, True)
}
PREDICATES = conditions() | predicates([])
INDEXED_BY_CHECKPOINTS = st.sampled_from([32, 4])


def held(files: list[AddFile], form: Form) -> LogRows[AddFile]:
    """Return files as a checkpoint holds them."""
    first = CommitActions(0, {}, Protocol(1, 2), Metadata("id", "{}"), adds=files)
    data, _ = write_checkpoint(replay(None, [first]), 0, form)
    (part,) = read_checkpoint(0, [("test.checkpoint.parquet", data)]).files.parts
    return part


def check_verdicts(partitioned: bool, data: st.DataObject) -> None:
    found = data.draw(FILES[partitioned], label="files")
    predicate = data.draw(PREDICATES, label="predicate")
    columns = ("p",) if partitioned else ()
    structs = CheckpointForm(SCHEMA, columns, data.draw(INDEXED_BY_CHECKPOINTS, label="indexed columns"))
    exact = needs_exact(predicate, SCHEMA)
    expected = [can_match(predicate, FileStatistics(file, SCHEMA, columns, exact=exact)) for file in found]
    assert matching(predicate, ActionRows(found), SCHEMA, columns).to_pylist() == expected
    for form in (Form(), Form(structs=structs)):
        assert matching(predicate, held(found, form), SCHEMA, columns).to_pylist() == expected
    only = held(found, Form(json=False, structs=CheckpointForm(SCHEMA, columns, 32)))
    verdicts = matching(predicate, only, SCHEMA, columns).to_pylist()
    assert verdicts == expected
    again = [can_match(predicate, FileStatistics(file, SCHEMA, columns, exact=exact)) for file in only.actions()]
    assert again == expected


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.booleans(), st.data())
def test_columns_give_the_verdicts_of_single_files_at_length(partitioned: bool, data: st.DataObject) -> None:
    check_verdicts(partitioned, data)


def check_sidecars(partitioned: bool, data: st.DataObject) -> None:
    found = data.draw(FILES[partitioned], label="files")
    predicate = data.draw(PREDICATES, label="predicate")
    columns = ("p",) if partitioned else ()
    form = CheckpointForm(SCHEMA, columns, 32)
    facts = form.facts(held(found, Form(structs=form)))
    exact = needs_exact(predicate, SCHEMA)
    one = AddFile("", {}, 0, 0, data_change=False, stats=facts)
    if any(can_match(predicate, FileStatistics(file, SCHEMA, columns, exact=exact)) for file in found):
        assert can_match(predicate, FileStatistics(one, SCHEMA, (), exact=exact))


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.booleans(), st.data())
def test_no_sidecar_with_a_file_that_can_match_is_left_out_at_length(partitioned: bool, data: st.DataObject) -> None:
    check_sidecars(partitioned, data)


FORTY = [f"f{at}" for at in range(40)]
SOME_STATS = st.sampled_from(
    [file_statistics(pa.table({"i": pa.array(each, pa.int64())})) for each in ([1], [2, 5], [None])]
)
FORTY_STATS = st.tuples(*[SOME_STATS] * len(FORTY))
GOING = st.lists(st.sampled_from(FORTY), max_size=5, unique=True)
COMING = st.lists(st.sampled_from([*FORTY, "g", "h"]), max_size=5, unique=True)
SOME_PREDICATES = st.sampled_from(
    list[Predicate]([Comparison(("i",), "=", 2), IsNull(("i",)), In(("i",), (1, 7)), Unknown()])
)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.data())
def test_pruning_a_table_equals_pruning_a_list(data: st.DataObject) -> None:
    """Over a checkpoint and commits after it, in which files go and come again."""
    stats = dict(zip(FORTY, data.draw(FORTY_STATS), strict=True))
    files = {name: AddFile(name, {}, 1, 1, data_change=True, stats=text) for name, text in stats.items()}
    first = CommitActions(0, {}, Protocol(1, 2), Metadata("id", "{}"), adds=list(files.values()))
    checkpoint, _ = write_checkpoint(replay(None, [first]), 0, Form(structs=CheckpointForm(SCHEMA, (), 32)))
    state = read_checkpoint(0, [("x.checkpoint.parquet", checkpoint)])
    for version in (1, 2, 3):
        going = data.draw(GOING)
        coming = data.draw(COMING)
        removes = [AddFile(name, {}, 1, 1, data_change=True).removed(0, data_change=True) for name in going]
        new = [AddFile(name, {}, 1, version, data_change=True, stats=data.draw(SOME_STATS)) for name in coming]
        state = replay(state, [CommitActions(version, {}, adds=new, removes=removes)])
    predicate = data.draw(SOME_PREDICATES, label="predicate")
    everything = list(state.files)
    assert len(everything) == len(state.files) == len({file.key for file in everything})
    assert prune(state.files, predicate, SCHEMA, ()) == prune(everything, predicate, SCHEMA, ())
    assert isinstance(state.files, ActionSet)
    assert state.files.total("size") == len(everything)


def test_statistics_may_be_laid_out_over_lines() -> None:
    text = orjson.dumps({"numRecords": 1, "minValues": {"i": 3}, "maxValues": {"i": 4}}, option=orjson.OPT_INDENT_2)
    files = [AddFile(f"f{at}", {}, 1, 1, data_change=True, stats=text.decode()) for at in range(3)]
    found = matching(Comparison(("i",), "=", 5), ActionRows(files), SCHEMA, ())
    assert found.to_pylist() == [False] * 3
