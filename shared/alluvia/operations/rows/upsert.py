"""Upsert rows by key: matching rows are updated or deleted, the others are inserted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import check_names, check_text
from alluvia.delta.schema.caller_rows import columns_of_rows, conform, conformed
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import expression_of
from alluvia.engine.conditions.pairs import Pairs, Side
from alluvia.engine.queries.tokens import masked
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows.edits import RowChanges
from alluvia.operations.rows.keyed_merge import KeyedMerge
from alluvia.operations.rows.merge import MATCHED, UNMATCHED, MergeClause, MergeRules
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.source_keys import SourceKeys

MATCHED_ACTIONS = ("update", "delete", "ignore")
UNMATCHED_ACTIONS = ("insert", "ignore")
NEW = "new"
"""The name of the new row in conditions."""
_CHUNK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of an upsert. `matched` is the fate of a row whose key a new row has, where `when` holds.

    `delete_when` comes first: where it holds, the row is deleted. `columns` are those that an update sets, by default
    all that the new rows have. `unmatched` is the fate of a new row whose key no row has, where `insert_when` holds.
    """

    matched: str = "update"
    columns: Sequence[str] | None = None
    when: str | None = None
    delete_when: str | None = None
    unmatched: str | None = None
    insert_when: str | None = None

    @property
    def inserts(self) -> bool:
        """Whether new rows are inserted: by default they are, except where matching rows are to be deleted."""
        return (self.unmatched or ("ignore" if self.matched == "delete" else "insert")) == "insert"

    def clauses(self, given: Sequence[str], columns_set: Sequence[str]) -> list[MergeClause]:
        """Return the clauses of the merge that it is, of rows with the `given` columns of the table."""
        clauses = []
        if self.delete_when is not None:
            clauses.append(MergeClause(MATCHED, "delete", self.delete_when))
        if self.matched != "ignore":
            action = "nothing" if self.matched == "update" and not columns_set else self.matched
            clauses.append(MergeClause(MATCHED, action, self.when, copied=columns_set))
        if self.inserts:
            clauses.append(MergeClause(UNMATCHED, "insert", self.insert_when, copied=given))
        return clauses


def check_rules(rules: Rules) -> None:
    """Raise `Invalid`, naming the option, for a combination that makes no sense."""
    for name, value, allowed in (
        ("matched", rules.matched, MATCHED_ACTIONS),
        ("unmatched", rules.unmatched or "insert", UNMATCHED_ACTIONS),
    ):
        if value not in allowed:
            raise Invalid(f"{name}: {value!r} is not valid; use one of {', '.join(map(repr, allowed))}")
    for name in ("when", "delete_when", "insert_when"):
        if getattr(rules, name) is not None:
            check_text(name, getattr(rules, name), "new.id > 0")
    if rules.columns is not None:
        check_names("columns", rules.columns)
    if rules.columns is not None and rules.matched != "update":
        raise Invalid("columns: valid only with matched='update'")
    if rules.when is not None and rules.matched == "ignore":
        raise Invalid("when: valid only with matched='update' or matched='delete'")
    if rules.insert_when is not None and not rules.inserts:
        raise Invalid("insert_when: valid only with unmatched='insert'")


def upsert(handle: TableHandle, rows: Any, on: Sequence[str], rules: Rules) -> RowChanges:
    """Update, delete and insert rows by key in one commit, so that concurrent upserts leave one row for each key.

    Only files that can hold one of the keys are read, and one at a time; of the rows, all are held in memory. A row
    with a null in its key matches none. Raises `Invalid`, naming the field, for a key that occurs in two rows, for rows
    that do not fit the table, and for an append-only table.
    """
    check_rules(rules)
    given = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    return change_rows(handle, "upsert", lambda snapshot: upsert_edit(snapshot, given, on, rules))


def upsert_edit(
    snapshot: Snapshot,
    rows: Any,
    on: Sequence[str],
    rules: Rules,
    keys: SourceKeys | None = None,
    source_rows: int | None = None,
) -> KeyedMerge:
    """Return the merge that an upsert is: a row that has the key of a new one is updated or deleted.

    `keys` and `source_rows` say what the keys are, and how many rows there are, where not all are here.
    """
    check_edit(snapshot, "upsert", None)
    schema = snapshot.schema
    conditions = [text for text in (rules.when, rules.delete_when, rules.insert_when) if text is not None]
    given = read_rows(rows, schema, on, lambda _: bool(conditions))
    columns = {*schema.names}
    known = [name for name in given.column_names if name in columns]
    if conditions and NEW in map(fold, columns):
        msg = f"the table has a column {NEW!r}, so a condition cannot refer to the new row's columns: leave it out"
        raise Invalid(msg)
    _check_extra(given, schema, conditions)
    merge_rules = MergeRules("", NEW, "", rules.clauses(known, _columns_to_set(rules, on, known, schema)))
    keys = keys or SourceKeys(given.select(on))
    return KeyedMerge(snapshot, given, keys, merge_rules, _parameters(rules, on), source_rows=source_rows)


def _check_extra(given: pa.Table, schema: pa.Schema, conditions: Sequence[str]) -> None:
    """Raise `Invalid` for a column that neither the table has, nor a condition uses."""
    columns = {*schema.names}
    extra = [name for name in given.column_names if name not in columns]
    if not extra:
        return
    pairs = Pairs([Side("", schema), Side(NEW, given.schema)], [])
    used = {name for text in conditions for name in pairs.used(expression_of(text))[NEW]}
    for name in extra:
        if name not in used:
            msg = f"column {name} is not in the table, and no condition uses it: leave it out, or evolve(add=…)"
            raise Invalid(msg)


def _columns_to_set(rules: Rules, on: Sequence[str], known: Sequence[str], schema: pa.Schema) -> list[str]:
    if rules.matched != "update":
        return []
    wanted = known if rules.columns is None else list(rules.columns)
    given, keys = set(known), set(on)
    for name in wanted:
        if name not in given:
            whose = "the rows" if name in schema.names else "the table"
            raise Invalid(f"columns: {name!r} is not a column of {whose}{hint(name, known)}")
    return [name for name in wanted if name not in keys]


def _parameters(rules: Rules, on: Sequence[str]) -> Mapping[str, str]:
    parameters = {
        "on": ", ".join(on),
        "matched": rules.matched,
        "unmatched": "insert" if rules.inserts else "ignore",
    }
    conditions = {"when": rules.when, "deleteWhen": rules.delete_when, "insertWhen": rules.insert_when}
    return parameters | {name: masked(text) for name, text in conditions.items() if text is not None}


def read_rows(rows: Any, schema: pa.Schema, on: Sequence[str], extra: Callable[[str], bool]) -> pa.Table:
    """Return a caller's rows as one table: the columns that the table has in its types, and others that `extra` wants.

    Raises `Invalid`, naming the column.
    """
    if isinstance(on, str) or not on or len(set(on)) < len(on):
        raise Invalid(f"on: expected the names of the key columns, each once, such as ['event_id'], got {on!r}")
    if isinstance(rows, pa.RecordBatchReader):
        rows = rows.read_all()
    elif isinstance(rows, (list, tuple)) and not rows:
        rows = schema.empty_table()
    given = columns_of_rows(rows)
    for name in on:
        if name not in schema.names or name not in given:
            whose, names = ("the rows", given) if name in schema.names else ("the table", schema.names)
            raise Invalid(f"on: {name!r} is not a column of {whose}{hint(name, names)}")
        if pa.types.is_nested(schema.field(name).type):
            raise Invalid(f"on: {name!r} is {type_name(schema.field(name).type)}, which cannot be a key")
    known = pa.schema([field for field in schema if field.name in given])
    ours = set(schema.names)
    others = sorted(name for name in given if name not in ours and extra(name))
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        whole = conform(table.drop_columns(others), known)
        return _append(whole, {name: table[name] for name in others})
    plain = [{name: row[name] for name in row if name not in others} for row in rows] if others else rows
    parts = list(conformed(plain, known, _CHUNK_BYTES)) or [known.empty_table()]
    return _append(pa.concat_tables(parts), {name: pa.array([row.get(name) for row in rows]) for name in others})


def _append(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows
