"""Tables and views as dbt names them: `"schema"."name"`, since a lake has one database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import ComponentName, Policy, RelationType
from dbt_common.exceptions import DbtRuntimeError

from alluvia.table_names import DATABASE


@dataclass
class SchemaAndName(Policy):
    """The parts of a name that a text has."""

    database: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class AlluviaRelation(BaseRelation):
    """A table or a view of the lake."""

    include_policy: Policy = field(default_factory=SchemaAndName)
    require_alias: bool = False
    replaceable_relations: frozenset[RelationType] = frozenset({RelationType.Table, RelationType.View})

    @classmethod
    def create(cls, *args: Any, **named: Any) -> Self:
        """Return a relation with its names in lower case, as in the lake, however a project writes them.

        Raises `DbtRuntimeError` for another database than the one that a lake has.
        """
        database = named.get("database")
        if database and database.lower() != DATABASE:
            raise DbtRuntimeError(f"database {database}: a lake has one database, {DATABASE!r}: leave `database` out")
        lower = {part: named[part].lower() for part in ("schema", "identifier") if isinstance(named.get(part), str)}
        return super().create(*args, **{**named, **lower})

    def _is_exactish_match(self, field: ComponentName, value: str) -> bool:
        """Whether a part of the name is a project's text for it, in lower case or not."""
        return self.path.get_lowered_part(field) == value.lower()
