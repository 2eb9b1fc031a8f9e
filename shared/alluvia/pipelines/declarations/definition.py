"""The property by which a table says what it is made of, and what a change of a declaration means for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from alluvia.delta.properties import PIPELINE
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.parse import same
from alluvia.errors import Corrupt, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.pipelines.declarations.declaration import Declaration, declaration_of, to_text
from alluvia.pipelines.queries.query import read_query

_OF = "quarantine_of"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The making of a table: its declaration, its kind, and the columns of its units.

    `columns` are for each source those that the query names, so that a name in it never comes to mean a column that the
    source gains; None where it means all that there are.
    """

    declaration: Declaration
    kind: str
    unit: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...] | None]

    def to_text(self) -> str:
        """Return it as the property's value."""
        value = {
            "declaration": self.declaration.to_json(),
            "kind": self.kind,
            "unit": list(self.unit),
            "columns": {name: None if each is None else list(each) for name, each in self.columns.items()},
        }
        return to_text(value)


def definition_of(snapshot: Snapshot) -> TableDefinition | None:
    """Return what a table is made of; None for a table that no pipeline makes. Raises `Corrupt`, and `Invalid`.

    The table of rows that failed another's expectations has no definition of its own.
    """
    text = snapshot.properties.get(PIPELINE)
    if text is None:
        return None
    try:
        recorded: dict[str, Any] = orjson.loads(text)
        if _OF in recorded:
            raise Invalid(f"table {snapshot.name} has the rows that failed the expectations of {recorded[_OF]}")
        columns = {name: None if each is None else tuple(each) for name, each in recorded["columns"].items()}
        return TableDefinition(
            declaration_of(recorded["declaration"]), str(recorded["kind"]), tuple(recorded["unit"]), columns
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"property {PIPELINE} of {snapshot.name} cannot be read: only runs of its pipeline may set it"
        raise Corrupt(msg) from error


def is_quarantine(snapshot: Snapshot) -> bool:
    """Whether a table has the rows that failed the expectations of another one."""
    return f'"{_OF}"' in snapshot.properties.get(PIPELINE, "")


def quarantine_text(target: str) -> str:
    """Return the property of the table of rows that failed the expectations of a table."""
    return to_text({_OF: target})


def changed_parts(before: TableDefinition, after: TableDefinition) -> Sequence[str]:
    """Return the parts of a declaration that have changed so that rows made before may be others now."""
    one, other = before.declaration, after.declaration
    changes = {
        "the query": not _same_query(one.query, other.query),
        "KEY": one.key != other.key,
        "SEQUENCE BY": one.sequencing != other.sequencing,
        "the kind": before.kind != after.kind,
        "PARTITIONED BY": one.partition_by != other.partition_by,
        "the columns of its units": before.unit != after.unit and before.kind == after.kind,
    }
    return [what for what, has_changed in changes.items() if has_changed]


def _same_query(one: str, other: str) -> bool:
    """Whether two texts are one query, but for spaces, comments and the case of words."""
    return one == other or same(read_query(one).root, read_query(other).root, {})
