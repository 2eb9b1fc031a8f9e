"""Which keys the source of a MERGE has, so that the query that pairs its rows reads only files that can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from alluvia.engine.duck.literals import literal, quote_name
from alluvia.engine.queries.parse import parse, walk
from alluvia.engine.queries.references import find_references
from alluvia.engine.queries.reproducible import expressions
from alluvia.errors import Invalid
from alluvia.sql.grammar.nodes import Merge
from alluvia.sql.grammar.tokens import Sql
from alluvia.sql.scope import SqlScope

KEYS_MAX = 100
"""About so many distinct values of a key are listed; of more, only the least and the greatest count."""
_COUNT = "approx_count_distinct"


def key_conditions(scope: SqlScope, node: Merge, keys: Mapping[str, str], target: pa.Schema, source: pa.Schema) -> str:
    """Return conditions on the table that hold for each row with a key of the source, to be added to ON.

    `keys` are columns of the table with those of the source that they equal. Reads the source, once or twice. Empty
    where the source may give other rows when it is read again, or where the types have no common order.
    """
    names = {
        mine: quote_name(theirs)
        for mine, theirs in keys.items()
        if _ordered(target.field(mine).type, source.field(theirs).type)
    }
    if not names or not _is_same_again(scope, node):
        return ""
    try:
        bounds = _row(scope, node, [f"{what}({name})" for name in names.values() for what in ("min", "max", _COUNT)])
        few = [mine for at, mine in enumerate(names) if 0 < bounds[3 * at + 2] <= KEYS_MAX]
        values = dict(zip(few, _row(scope, node, [f"list(DISTINCT {names[mine]})" for mine in few]), strict=True))
    except (ValueError, OverflowError):  # a time that Python cannot represent
        return ""
    found = []
    for at, mine in enumerate(names):
        column, (least, greatest) = f"{quote_name(node.alias)}.{quote_name(mine)}", bounds[3 * at : 3 * at + 2]
        if least is None:
            return " AND false"
        if mine in values:
            found.append(f"{column} IN ({', '.join(literal(each) for each in values[mine] if each is not None)})")
        found.append(f"{column} BETWEEN {literal(least)} AND {literal(greatest)}")
    return "".join(f" AND {each}" for each in found)


def _row(scope: SqlScope, node: Merge, shown: list[str]) -> list[Any]:
    if not shown:
        return []
    columns = ", ".join(f"{each} AS c{at}" for at, each in enumerate(shown))
    text = f"SELECT {columns} FROM {node.source.text}"  # noqa: S608
    with scope.query(Sql(text, node.source.placeholders)) as result:
        return list(result.read_all().to_pylist()[0].values())


def _ordered(mine: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether both have the same order, in statistics too."""
    if pa.types.is_integer(mine) and pa.types.is_integer(theirs):
        return True
    return mine == theirs and (pa.types.is_string(mine) or pa.types.is_date(mine) or pa.types.is_timestamp(mine))


def _is_same_again(scope: SqlScope, node: Merge) -> bool:
    """Whether the source is certain to have the same rows whenever it is read in this transaction."""
    try:
        root = parse(f"FROM {node.source.text}").root
        references = find_references(root, parameters=True)
    except Invalid:
        return False
    limited = any("LIMIT" in str(each.get("type")) or each.get("sample") for each in walk(root))
    return (
        not limited
        and all(why in ("star", "subquery") for _, why in expressions(root))
        and all(each.table is not None and not each.is_function and scope.has(each.table) for each in references.tables)
    )
