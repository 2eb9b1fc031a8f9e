"""The files that a condition leaves have every row of a query with that condition, whoever asks for them."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.delta.data_files.scan import read_file
from alluvia.errors import Invalid
from tests.examples import examples
from tests.unit.query.test_pruning_property import FILES, REFUSALS, SCHEMA, conditions, rows_of_file

Ids = Mapping[str, Mapping[str, set[int]]]
CONDITIONS = conditions("rows").map(lambda text: text.replace("rows.", ""))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    """Tables of many small files, with deletion vectors and a renamed column in one of them."""
    chance = random.Random(20261123)
    lake = alluvia.connect(tmp_path_factory.mktemp("lake"))
    vectors = {"delta.enableDeletionVectors": "true"}
    for name, partition_by in (("a", ["day(ts)"]), ("b", ["flag"])):
        table = lake.create_table(name, SCHEMA, partition_by=partition_by, properties=vectors)
        for file in range(FILES):
            table.append(pa.Table.from_pylist(rows_of_file(chance, file), SCHEMA))
    lake["a"].checkpoint()
    lake["a"].delete("id % 3 = 1")
    lake["b"].evolve(rename={"n": "was_n"})
    lake["b"].evolve(rename={"was_n": "n"})
    return lake


@pytest.fixture(scope="module")
def ids(lake: alluvia.Lake) -> Ids:
    """The ids in each file, by table and path, read without any pruning."""
    found: dict[str, dict[str, set[int]]] = {}
    for name in ("a", "b"):
        snapshot = lake[name].snapshot()
        schema = pa.schema([snapshot.schema.field("id")])
        found[name] = {
            file.path: {row for batch in read_file(snapshot, lake.store, file, schema) for row in batch[0].to_pylist()}
            for file in snapshot.files
        }
    return found


@pytest.mark.usefixtures("light")
@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from("ab"), condition=CONDITIONS)
def test_files_with_a_condition_have_every_row_of_a_query(
    lake: alluvia.Lake, ids: Ids, name: str, condition: str
) -> None:
    try:
        rows = set(lake.sql(f"SELECT id FROM {name} WHERE {condition}")["id"].to_pylist())
        paths = lake.sql(f"SELECT path FROM files('{name}', '{condition.replace(chr(39), 2 * chr(39))}')")["path"]
    except Invalid as error:
        assume(not REFUSALS.search(str(error)))
        raise
    listed = set(paths.to_pylist())
    assert rows <= set().union(*(ids[name][path] for path in listed))
    assert {file.path for file in lake[name].files(where=condition)} == listed


def test_the_conditions_of_this_test_leave_files_out(lake: alluvia.Lake, ids: Ids) -> None:
    for condition in ("n < 3", "name LIKE 'b%'", "ts < '2023-12-30'", "flag = false AND n < 5"):
        assert 0 < len(lake["b"].files(where=condition)) < len(ids["b"])
