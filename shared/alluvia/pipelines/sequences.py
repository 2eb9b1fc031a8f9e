"""SQL by which changes of keyed rows become the rows themselves: the newest of each key, or all with their times. Pure.

A change wins over those with a smaller value of SEQUENCE BY; null is the smallest. Of several with the same value, the
one wins that is greatest by all columns in order, so that the answer does not depend on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.engine.duck.literals import quote_name
from alluvia.pipelines.declarations.declaration import Declaration, Sequencing

HISTORY = ("valid_from", "valid_to", "is_current")
"""The columns of SCD type 2: from when a row was so, until when, null for now; and whether it is so now."""


def sequenced(query: str, declaration: Declaration, sequencing: Sequencing, names: Sequence[str]) -> str:
    """Return SQL that gives a table's rows of the changes that a query gives, whose columns are `names`."""
    made = _newest if sequencing.scd == 1 else _history
    return made(query, declaration, sequencing, names)


def _newest(query: str, declaration: Declaration, sequencing: Sequencing, names: Sequence[str]) -> str:
    key, order = _listed(declaration.key), _order(sequencing, names)
    first = f"SELECT * FROM (\n{query}\n) AS r({_listed(names)}) QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1"  # noqa: S608, E501
    return f"SELECT * FROM ({first}) WHERE {_kept(sequencing)}"  # noqa: S608


def _history(query: str, declaration: Declaration, sequencing: Sequencing, names: Sequence[str]) -> str:
    key, by = _listed(declaration.key), quote_name(sequencing.by)
    order = _order(sequencing, names)
    one = f"SELECT * FROM (\n{query}\n) AS r({_listed(names)}) QUALIFY row_number() OVER (PARTITION BY {key}, {by} ORDER BY {order}) = 1"  # noqa: S608, E501
    following = f"lead({by}) OVER (PARTITION BY {key} ORDER BY {by} NULLS FIRST)"
    timed = f"SELECT *, {by} AS valid_from, {following} AS valid_to FROM ({one})"  # noqa: S608
    return f"SELECT *, valid_to IS NULL AS is_current FROM ({timed}) WHERE {_kept(sequencing)}"  # noqa: S608


def _order(sequencing: Sequencing, names: Sequence[str]) -> str:
    return ", ".join(f"{quote_name(name)} DESC NULLS LAST" for name in (sequencing.by, *names))


def _kept(sequencing: Sequencing) -> str:
    return "true" if sequencing.delete_when is None else f"(\n{sequencing.delete_when}\n) IS NOT TRUE"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quote_name, names))
