"""The page of verbs: each name in it exists, and each name that exists is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from alluvia.api.api_hints import SERVED
from alluvia.api.lake import Lake, Table
from alluvia.api.lake_branch import Branch
from alluvia.api.lake_stream import Stream
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.api.served_lake import ServedLake, ServedTable
from alluvia.cli.command_line import _MODULE_OF
from alluvia.engine.queries.functions import LAKE_FUNCTIONS
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from alluvia.sql.grammar.statements import parse

PAGE = Path(__file__).parents[2] / "docs" / "VERBS.md"
CLASSES: dict[str, type] = {
    "lake": Lake, "table": Table, "branch": Branch, "stream": Stream, "tx": LakeTransaction, "served": ServedLake,
    "served.table": ServedTable,
}  # fmt: skip
ROUTES = {
    f"{method} {route.path}"
    for route in (*INGEST_ROUTES, *QUERY_ROUTES)
    for method in route.methods
    if method not in ("HEAD", "OPTIONS")
}


@cache
def spans() -> list[list[list[str]]]:
    """Return the code in each cell of each row: operation, command, SQL, HTTP, Python."""
    rows = []
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| Operation"):
            cells = line.removeprefix("| ").removesuffix("|").split(" |")
            assert len(cells) == 5 or len(cells) == 6, line
            rows.append([re.findall(r"`([^`]+)`", cell) for cell in cells])
    return rows


def column(number: int) -> set[str]:
    return {span for row in spans() for span in row[number]}


@cache
def left_out() -> set[str]:
    text = PAGE.read_text("utf-8").partition("## Not in the tables")[2]
    return {span for line in text.splitlines() if line.startswith("- ") for span in re.findall(r"`([^`]+)`", line)}


def public(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_"))


def test_each_command_is_there_and_each_that_exists_is_in_the_page() -> None:
    named = {span.removeprefix("alluvia ") for span in column(1)}
    without = {span.removeprefix("alluvia ") for span in left_out() if span.startswith("alluvia ")}
    assert named - set(_MODULE_OF) == set()
    assert set(_MODULE_OF) - named - without == set()
    assert without <= set(_MODULE_OF)


@pytest.mark.parametrize("statement", sorted(column(2)))
def test_each_statement_is_one_of_the_grammar(statement: str) -> None:
    assert len(parse(statement)) == 1
    function = re.fullmatch(r"FROM (\w+)\(.*\)", statement)
    assert function is None or function[1] in LAKE_FUNCTIONS


def test_each_statement_of_the_grammar_is_in_the_page() -> None:
    from alluvia.sql.grammar import nodes

    inner = {"WhenClause"}
    kinds = {name for name, kind in vars(nodes).items() if isinstance(kind, type) and kind.__module__ == nodes.__name__}
    assert kinds - inner == {type(parse(statement)[0].node).__name__ for statement in column(2)}


def test_each_route_is_there_and_each_that_exists_is_in_the_page() -> None:
    paths = {span.rpartition(" ")[2] for span in left_out() if "/v1/" in span}
    assert column(3) - ROUTES == set()
    assert {route for route in ROUTES if route not in column(3) and route.partition(" ")[2] not in paths} == set()


def test_each_method_is_there_and_each_that_exists_is_in_the_page() -> None:
    named: dict[str, set[str]] = {owner: set() for owner in CLASSES}
    for span in column(4) | {each for each in left_out() if each.partition(".")[0] in CLASSES}:
        owner, _, name = span.rpartition(".")
        assert hasattr(CLASSES[owner], name) or name in ("lake", "branch_name", "name"), span
        named[owner].add(name)
    for owner, kind in CLASSES.items():
        known = named[owner] | (named["lake"] if owner == "branch" else set())
        assert set(public(kind)) - known == set(), owner


@pytest.mark.parametrize("method", SERVED)
def test_what_a_server_takes_for_a_method_is_what_the_page_says(method: str) -> None:
    taken = [
        [*sql, *http] for _, _, sql, http, python, *_ in spans() if {f"lake.{method}", f"table.{method}"} & set(python)
    ]
    assert any(SERVED[method] in each for each in taken)
