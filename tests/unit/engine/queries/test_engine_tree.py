"""The trees of DuckDB 1.5 and 2.0 in one form, which only one module produces."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import alluvia
from alluvia.engine.queries.engine_tree import LOCATION, our_tree
from alluvia.engine.queries.parse import parse, walk
from alluvia.errors import Invalid
from tests.golden.duckdb_trees import QUERIES, recorded, serialized

_PLACED = {"BASE_TABLE", "COLUMN_REF"}
"""Nodes whose places in the text are used; those of operators differ between the lines."""
_OF_2 = {"literal", "payload_aggregates", "qualified_name", "query_location_length", "query_node", "type_expr"}


def starts(text: str) -> list[int]:
    return [start for start, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]


def read(text: str, tree: str) -> Any:
    return our_tree(tree.encode(), text.encode(), starts(text))


def comparable(value: Any) -> Any:
    """Return a tree without the parts that may differ: places of operators, parts of nested types, `main`."""
    if isinstance(value, list):
        return [comparable(child) for child in value]
    if not isinstance(value, dict):
        return value
    if value.get("type_info") is not None and value.get("id") != "DECIMAL":
        return {"nested": True}
    kind = str(value.get("class") or value.get("type"))
    told = value if kind in _PLACED else value.keys() - {LOCATION}
    return {
        key: comparable(value[key]) for key in told if (key, value[key]) not in (("schema", ""), ("schema", "main"))
    }


@pytest.mark.parametrize("text", QUERIES)
def test_the_trees_of_both_versions_are_equal(text: str) -> None:
    of_2, installed = read(text, recorded()[text]), read(text, serialized(text))
    if installed["error"]:
        assert (of_2["error"], of_2["position"]) == (True, installed["position"])
        return
    assert comparable(of_2) == comparable(installed)
    assert not any(_OF_2 & node.keys() for node in walk(of_2))


@pytest.mark.parametrize("value", ["query_location_length", '"query_location_length":', '\\"query_location_length":1'])
def test_a_string_may_contain_a_key_of_duckdb_2(value: str, tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("t", {"n": "long"}).append([{"n": 1}])
    assert lake.sql(f"SELECT '{value}' AS v FROM t JOIN t u USING (n)").to_pylist() == [{"v": value}]


def test_a_long_union_is_halved_as_often_as_it_takes() -> None:
    """DuckDB 2.0 has all its queries in one node, and 1.5 one below the other."""
    nodes = [{"type": "SELECT_NODE", "number": number} for number in range(5)]
    operation = {"type": "SET_OPERATION_NODE", "setop_type": "UNION", "left": None, "right": None, "children": nodes}
    tree = read("", json.dumps([operation, {"query_location_length": 1}]))[0]
    numbers = [node["number"] for node in walk(tree) if "number" in node]
    assert numbers == [0, 1, 2, 3, 4]
    assert tree["left"]["left"]["right"] == nodes[1]
    assert "children" not in tree


def test_statements_in_with_and_names_of_four_parts_are_refused() -> None:
    with pytest.raises(Invalid, match=r"^WITH needs a SELECT in its parentheses, not DELETE$"):
        read("", '[{"type": "DELETE_QUERY_NODE", "query_location_length": 1}]')
    with pytest.raises(Invalid, match=r"'a\.b\.c\.d' is a name of 4 parts"):
        read("", '{"type": "BASE_TABLE", "qualified_name": {"path": ["a", "b", "c", "d"]}, "query_location_length": 1}')


def test_unknown_parts_stay_for_the_checks() -> None:
    node = {"class": "NEW", "type": "NEW", "inner": [{"class": "CONSTANT", "literal": {"kind": "NEW", "text": "x"}}]}
    tree = read("", json.dumps({**node, "query_location_length": 1}))
    assert tree == {**node, "inner": [{"class": "CONSTANT", "value": {"kind": "NEW", "text": "x"}}]}


def test_the_position_of_an_error_counts_bytes() -> None:
    with pytest.raises(Invalid) as raised:
        parse("SELECT 'éé', b FROM t WHERE x = ;")
    line, mark = str(raised.value).splitlines()[-2:]
    assert line[mark.index("^")] == ";"


def test_no_other_module_knows_the_engines_trees() -> None:
    root = Path(alluvia.__file__).parent
    known = {path.relative_to(root).as_posix(): set(_texts(path.read_text())) for path in root.rglob("*.py")}
    assert {name for name, texts in known.items() if texts & _OF_2 - {"literal"}} == {"engine/queries/engine_tree.py"}
    serializing = {name for name, texts in known.items() if any("json_serialize_sql(" in text for text in texts)}
    assert serializing == {"engine/queries/parse.py"}
    assert not any("json_deserialize_sql(" in text for texts in known.values() for text in texts)


def _texts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
