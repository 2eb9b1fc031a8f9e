"""Reads of fields of `properties`, such as `properties ->> 'user_id'`, that a query may have as columns. Pure.

Where data files hold fields as columns, the text of `properties` would be made of all of them, only to be read again.
So the views of a query get a column for each field that it reads, and the query reads that. This is done where it
cannot change the answer: nothing in the query may show all columns of a table (`*`, a whole row, NATURAL, PIVOT), each
`properties` must be read in this way, and nothing else in the query may be called so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.duck.variant_sql import plain_key
from alluvia.engine.queries.engine_tree import LOCATION
from alluvia.engine.queries.functions import UNNESTING
from alluvia.engine.queries.parse import Node, text_literal, walk
from alluvia.engine.queries.references import References, names_in_use
from alluvia.engine.queries.shown_names import FIELDS
from alluvia.lazy_dataclasses import dataclass

_PROPERTIES = "properties"
_WHOLE_ROWS = ("PIVOT", "SHOW_REF")


@dataclass(frozen=True, slots=True)
class FieldRead:
    """A read of a field: its node, the parts of the name of `properties` as written, and the text after `->>`.

    `column` is the name of the column to read instead, `alias` that of the result, if it needs one.
    """

    node: Node
    names: Sequence[str]
    path: str
    column: str
    alias: str = ""

    @property
    def replacement(self) -> Node:
        """Return the node to read instead."""
        names = [*self.names[:-1], self.column]
        alias = self.alias or self.node["alias"]
        return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": alias, LOCATION: 0, "column_names": names}

    @property
    def text(self) -> str:
        """Return the SQL to write instead."""
        name = ".".join(map(quote_name, [*self.names[:-1], self.column]))
        return f"{name} AS {quote_name(self.alias)} " if self.alias else f"{name} "

    @property
    def shown(self) -> str:
        """Return the expression as DuckDB names it, without the table."""
        return f"{self.names[-1]} ->> {quote_text(self.path)}"


def find_field_reads(root: Node, references: References) -> list[FieldRead]:
    """Return the reads of fields in a query whose tables alone have `properties`; none if some cannot be columns."""
    nodes = list(walk(root))
    ordered = {id(each["expression"]) for node in nodes for each in node.get("orders") or ()}  # ORDER BY ALL has a star
    tables = {fold(reference.alias) for reference in references.tables}
    if any(_shows_rows(node) for node in nodes if id(node) not in ordered) or fold(_PROPERTIES) in names_in_use(root):
        return []
    named = [node for node in nodes if node.get("class") == "COLUMN_REF"]
    if any(fold(node["column_names"][-1]) in tables | {""} or "->>" in node["column_names"][-1] for node in named):
        return []
    if any(each.startswith(FIELDS) for each in names_in_use(root)):
        return []
    reads = list(_reads(nodes, tables))
    uses = [node for node in named if fold(node["column_names"][-1]) == _PROPERTIES]
    if len(reads) != len(uses):
        return []
    inner = [item for select in references.selects if select is not root for item in select["select_list"]]
    found = {id(read) for read, _, _ in reads}
    if any(not item["alias"] and any(id(node) in found for node in walk(item)) for item in inner):
        return []
    return _numbered(reads, root)


def _numbered(reads: Iterable[tuple[Node, Sequence[str], str]], root: Node) -> list[FieldRead]:
    columns: dict[tuple[str, str], str] = {}
    bare = {id(item) for item in root.get("select_list") or () if not item["alias"]}
    numbered = []
    for node, names, path in reads:
        column = columns.setdefault((names[-1], path), f"{FIELDS}{len(columns)}")
        alias = f"({'.'.join(names)} ->> {quote_text(path)})" if id(node) in bare else ""
        numbered.append(FieldRead(node, names, path, column, alias))
    return numbered


def _shows_rows(node: Node) -> bool:
    """Whether a node may show columns of a table that it does not name, or renames them."""
    if node.get("class") in ("STAR", "LAMBDA", "POSITIONAL_REFERENCE") or node.get("type") in _WHOLE_ROWS:
        return True
    if node.get("class") == "FUNCTION" and fold(node["function_name"]) in UNNESTING:
        return True
    if node.get("ref_type") == "NATURAL" or node.get("column_name_alias") or node.get("aliases"):
        return True
    return _PROPERTIES in map(fold, node.get("using_columns") or ())


def _reads(nodes: Iterable[Node], tables: frozenset[str] | set[str]) -> Iterator[tuple[Node, Sequence[str], str]]:
    for node in nodes:
        if node.get("class") != "FUNCTION" or node.get("function_name") != "->>" or len(node["children"]) != 2:
            continue
        column, path = node["children"][0], text_literal(node["children"][1])
        if column.get("class") != "COLUMN_REF" or path is None or plain_key(path) is None or column["alias"]:
            continue
        names = column["column_names"]
        if fold(names[-1]) == _PROPERTIES and (len(names) == 1 or (len(names) == 2 and fold(names[0]) in tables)):
            yield node, names, path


def shown_fields(reads: Sequence[FieldRead]) -> Mapping[str, Any]:
    """Return by its column how results show each read (see `shown_names`)."""
    return {read.column: (read.shown,) for read in reads}
