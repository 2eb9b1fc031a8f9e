"""Promoted fields: columns that hold what events have in `properties` under a key. Pure.

A column that is added to a table with a text column `properties` says in its field's metadata under which key events
have it. A file that this library has written since has the value once, in the column: `moved` takes the key out of the
text. The add of such a file has a tag. In a file without it, of earlier or of other writers, a value may lie in either
place. Readers see one form of both, `shown`: the column has the value, and the text has the field as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import eq

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile, Metadata
from alluvia.delta.promoted_spellings import as_scalar, json_texts, spelled_at_sight, spelled_otherwise
from alluvia.delta.schema.serialization import schema_fields
from alluvia.delta.skipping.predicate import Predicate, columns_of, not_about
from alluvia.delta.skipping.pruning import Doubt, tag_number
from alluvia.lazy_dataclasses import dataclass

PROPERTIES = "properties"
NUMBER = "alluvia.promotion"
"""The key of a field's metadata with the number of its promotion: 1, 2, … in a table, never used twice."""
KEY = "alluvia.promotion.key"
"""The key of a field's metadata with the name that events have for it, whatever the column is called later."""
PROMOTIONS = "alluvia.promotions"
"""The table property with the highest number of a promotion that there has been. Users cannot set it."""
TAG = "alluvia.promotions"
"""The tag of an add with the highest number of a promotion that the file has been written with."""
NOT_PROMOTED = ("event_id", "ts", "event", "source", "received_at", PROPERTIES)
_TEXTS = ("string", "variant")
"""Types of `properties` that are text to readers."""
_SPACE = " \t\r\n"
_SPELLED = r"\\[u/]"
"""Escapes that can stand for any character of a key."""


@dataclass(frozen=True, slots=True)
class PromotedField:
    """A promoted field: the column's name and type, its key in `properties`, and its number."""

    column: str
    key: str
    number: int
    kind: pa.DataType

    @property
    def member(self) -> str:
        """Return the key as JSON text."""
        return orjson.dumps(self.key).decode()

    def is_moved(self, file: AddFile) -> bool:
        """Whether a file has all values that fit in the column, and only the others in texts."""
        return moved_number(file.tags) >= self.number


Promoted = tuple[PromotedField, ...]


def moved_number(tags: Mapping[str, str]) -> int:
    """Return the highest number of a promotion that the file with some tags has been written with."""
    return tag_number(tags.get(TAG))


def promoted_fields(schema_string: str, schema: pa.Schema) -> Promoted:
    """Return the promoted fields of a table, none where it has no text `properties`."""
    if NUMBER not in schema_string:
        return ()
    fields = {field.get("name"): field for field in schema_fields(schema_string)}
    if fields.get(PROPERTIES, {}).get("type") not in _TEXTS:
        return ()
    promoted, columns = [], {*schema.names}
    for name, field in fields.items():
        metadata = field.get("metadata")
        if not isinstance(metadata, dict) or name not in columns:
            continue
        number, key = metadata.get(NUMBER), metadata.get(KEY, name)
        if type(number) is int and number > 0:
            promoted.append(PromotedField(str(name), str(key), number, schema.field(name).type))
    return tuple(promoted)


def with_promotions(metadata: Metadata, columns: Collection[str]) -> Metadata:
    """Return metadata in which some columns, just added, are promoted fields, if the table has a text `properties`.

    Columns that ingestion fills by rules of their own are left out: `properties` has another field of such a name.
    """
    whole = orjson.loads(metadata.schema_string)
    if not any(field["name"] == PROPERTIES and field["type"] in _TEXTS for field in whole["fields"]):
        return metadata
    number = tag_number(metadata.configuration.get(PROMOTIONS))
    for field in whole["fields"]:
        if field["name"] in columns and field["name"] not in NOT_PROMOTED:
            number += 1
            field["metadata"] = {**field["metadata"], NUMBER: number, KEY: field["name"]}
    configuration = {**metadata.configuration, **promotions_of({PROMOTIONS: str(number)})}
    return replace(metadata, schema_string=orjson.dumps(whole).decode(), configuration=configuration)


def promotions_of(*configurations: Mapping[str, str]) -> dict[str, str]:
    """Return the property with the highest number of a promotion in the properties of several versions, if any."""
    number = max(tag_number(each.get(PROMOTIONS)) for each in configurations)
    return {PROMOTIONS: str(number)} if number else {}


def tags_of(promoted: Promoted) -> dict[str, str]:
    """Return the tags of a file whose rows are in their stored form."""
    return {TAG: str(max(field.number for field in promoted))} if promoted else {}


def columns_needed(columns: Collection[str], promoted: Promoted, file: AddFile) -> list[str]:
    """Return the columns that must be read of a file, besides some, to show these."""
    names = {field.column for field in promoted}
    if PROPERTIES in columns:
        return [name for name in names if name not in columns]
    unmoved = any(field.column in columns and not field.is_moved(file) for field in promoted)
    return [PROPERTIES, *(name for name in names if name not in columns)] if unmoved else []


def told_by_statistics(predicate: Predicate, promoted: Promoted) -> tuple[Predicate, Doubt | None]:
    """Return the part of a predicate that statistics of files with all promotions decide, and the doubt about others.

    No statistics are about the shown texts.
    """
    predicate = not_about(predicate, [PROPERTIES])
    used = {path[0] for path in columns_of(predicate)}
    concerned = [field for field in promoted if field.column in used]
    if not concerned:
        return predicate, None
    least = not_about(predicate, [field.column for field in concerned])
    return predicate, Doubt(least, TAG, max(field.number for field in concerned))


def shown(rows: pa.RecordBatch, promoted: Promoted, file: AddFile) -> pa.RecordBatch:
    """Return a file's rows in the form that readers see.

    Their columns, by the names of the table, include all of the promoted ones and `properties`.
    """
    texts = rows.column(rows.schema.get_field_index(PROPERTIES))
    stored = {field.column: rows.column(rows.schema.get_field_index(field.column)) for field in promoted}
    columns = dict(stored)
    for field in promoted:
        if not field.is_moved(file):
            texts, columns[field.column] = _settled(texts, field, stored[field.column], moving=False)
    columns[PROPERTIES] = spliced(texts, promoted, stored)
    return _replaced(rows, columns)


def moved(rows: pa.Table, promoted: Promoted) -> pa.Table:
    """Return rows in the form that files have: each value that fits its column there, and its key in no text.

    Where a column has a value, it is the field's. Another one that a text has under the key stays in the text, under
    another key (`members.with_member_aside`).
    """
    if not promoted or PROPERTIES not in rows.column_names:
        return rows
    fields = [field for field in promoted if field.column in rows.column_names]
    batches = [_moved(batch, fields) for batch in rows.combine_chunks().to_batches()]
    return pa.Table.from_batches(batches, rows.schema)


def _moved(rows: pa.RecordBatch, fields: Sequence[PromotedField]) -> pa.RecordBatch:
    texts = _unspliced(rows, fields)
    columns: dict[str, pa.Array] = {}
    for field in fields:
        texts, columns[field.column] = _settled(texts, field, rows.column(field.column), moving=True)
    return _replaced(rows, columns | {PROPERTIES: texts})


def shown_rows(rows: pa.Table, promoted: Promoted) -> pa.Table:
    """Return rows that are `moved` in the form that readers see."""
    if not promoted or PROPERTIES not in rows.column_names:
        return rows
    fields = tuple(field for field in promoted if field.column in rows.column_names)
    batches = []
    for batch in rows.to_batches():
        stored = {field.column: batch.column(field.column) for field in fields}
        batches.append(_replaced(batch, {PROPERTIES: spliced(batch.column(PROPERTIES), fields, stored)}))
    return pa.Table.from_batches(batches, rows.schema)


def as_if_moved(rows: pa.RecordBatch, promoted: Promoted) -> pa.RecordBatch:
    """Return shown rows with the texts that they have once fields are moved: so the same rows compare equal."""
    if not promoted or PROPERTIES not in rows.schema.names:
        return rows
    table = shown_rows(moved(pa.Table.from_batches([rows]), promoted), promoted).combine_chunks()
    return next(iter(table.to_batches()), rows)


def settled(rows: pa.Table, given: Collection[str], promoted: Promoted) -> pa.Table:
    """Return shown rows in which some columns got new values, so that both places of a promoted field say the same.

    A field whose column got one is what that says, also null. Where the text got one, it says all. Where both did, they
    are as in a new row.
    """
    if not promoted or {PROPERTIES, *(field.column for field in promoted)}.isdisjoint(given):
        return rows
    for field in promoted:
        if field.column in given and PROPERTIES not in given:
            texts = _without(rows.column(PROPERTIES).combine_chunks(), field)
            rows = rows.set_column(rows.schema.get_field_index(PROPERTIES), rows.schema.field(PROPERTIES), texts)
        elif field.column not in given and PROPERTIES in given:
            at = rows.schema.get_field_index(field.column)
            rows = rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), field.kind))
    return shown_rows(moved(rows, promoted), promoted)


def columns_settled(given: Iterable[str], promoted: Promoted) -> list[str]:
    """Return the columns that change where some get new values: `settled` may change others."""
    names = list(given)
    columns = [field.column for field in promoted]
    if PROPERTIES in names:
        return list(dict.fromkeys([*names, *columns]))
    return list(dict.fromkeys([*names, *([PROPERTIES] if not set(columns).isdisjoint(names) else [])]))


def _replaced(rows: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    arrays = [columns.get(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _may_have(texts: pa.Array, field: PromotedField) -> pa.BooleanArray:
    """Return which texts may have a field, fast; false for null."""
    found = pc.or_(pc.match_substring(texts, field.member), pc.match_substring_regex(texts, _SPELLED))
    return pc.fill_null(found, fill_value=False)


def _without(texts: pa.Array, field: PromotedField) -> pa.Array:
    """Return texts without the key of a field."""
    masks = _may_have(texts, field)
    places = pc.indices_nonzero(masks)
    if not len(places):
        return texts
    from alluvia.json_values.members import without_member

    cut = without_member(texts.take(places).to_pylist(), field.key)
    return pc.replace_with_mask(texts, masks, pa.array(cut, pa.string()))


def _settled(texts: pa.Array, field: PromotedField, stored: pa.Array, *, moving: bool) -> tuple[pa.Array, pa.Array]:
    """Return texts and the column of a field: its values, else those of the texts, by the rules of ingestion.

    Where the column had a value, no text keeps the key, but in these cases: the text spells that value as the column
    does not (12 in a column of doubles), so that readers go on to see it as it was sent; or it has another value, which
    is kept aside. `moving` does the same to texts whose values fill the column.
    """
    masks = _may_have(texts, field)
    if pc.any(masks).as_py() and stored.null_count < len(stored):
        masks = pc.and_not(masks, spelled_at_sight(texts, field.member, stored))
    places = pc.indices_nonzero(masks)
    if not len(places):
        return texts, stored
    from alluvia.json_values.convert import column  # loads what parses, which few batches need
    from alluvia.json_values.members import values_of, with_member_aside, without_member

    sent = texts.take(places).to_pylist()
    values = values_of(sent, field.key)
    found, _ = column(pa.field(field.column, field.kind), values)
    own = stored.take(places)
    whole = pc.coalesce(own, found)
    numbers = pa.array(range(len(whole)), pa.int64())
    filled = pc.coalesce(stored, whole.take(pc.replace_with_mask(pa.nulls(len(texts), pa.int64()), masks, numbers)))
    said = whole if moving else own
    if said.null_count == len(said):
        return texts, filled
    cut = without_member(sent, field.key)
    others = set(spelled_otherwise(values, said))
    same = list(map(eq, found.to_pylist(), whole.to_pylist()))
    kept = list(sent)
    for at in pc.indices_nonzero(pc.is_valid(said)).to_pylist():
        if values[at] is None or (same[at] and (at not in others or field.member not in sent[at])):
            kept[at] = cut[at]
        elif not same[at]:
            kept[at] = with_member_aside(sent[at], field.key)
    return pc.replace_with_mask(texts, masks, pa.array(kept, pa.string())), filled


def spliced(texts: pa.Array, promoted: Promoted, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return texts with the columns' values in front, as members, but for keys that texts have in their own spelling.

    A text of anything but an object stays as it is.
    """
    members = _members(promoted, {field.column: _unspelled(texts, field, columns[field.column]) for field in promoted})
    if members is None:
        return texts
    given = pc.utf8_ltrim(pc.fill_null(texts, "{}"), characters=_SPACE)
    rest = pc.utf8_slice_codeunits(given, 1)
    empty = pc.starts_with(pc.utf8_ltrim(rest, characters=_SPACE), "}")
    comma = pc.if_else(empty, as_scalar(""), as_scalar(","))
    new = pc.binary_join_element_wise(as_scalar("{"), members, comma, rest, as_scalar(""))
    return pc.if_else(pc.and_(pc.not_equal(members, as_scalar("")), pc.starts_with(given, "{")), new, texts)


def _unspelled(texts: pa.Array, field: PromotedField, column: pa.Array) -> pa.Array:
    """Return a column with null where the text has its field as well."""
    masks = pc.and_(pc.is_valid(column), pc.fill_null(pc.match_substring(texts, field.member), fill_value=False))
    places = pc.indices_nonzero(masks)
    if not len(places):
        return column
    from alluvia.json_values.members import values_of

    spelled = [value is not None for value in values_of(texts.take(places).to_pylist(), field.key)]
    found = pc.replace_with_mask(masks, masks, pa.array(spelled, pa.bool_()))
    return pc.if_else(found, pa.scalar(None, column.type), column)


def _members(promoted: Promoted, columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """Return the members of an object that rows' fields are, as JSON text; None if no row has any."""
    parts: list[pa.Array] = []
    for field in promoted:
        column = columns[field.column]
        if column.null_count < len(column):
            member = as_scalar(f"{field.member}:")
            parts.append(pc.binary_join_element_wise(member, json_texts(column), as_scalar(","), as_scalar("")))
    if not parts:
        return None
    # Arrow leaves out rows of nulls alone where it is to skip nulls.
    joined = pc.binary_join_element_wise(parts[0], *parts[1:], as_scalar(""), null_handling="replace")
    return pc.utf8_rtrim(joined, characters=",")


def _unspliced(rows: pa.RecordBatch, fields: Sequence[PromotedField]) -> pa.Array:
    """Return the texts of rows without what `spliced` has put in front of them, where it stands there as it was put."""
    texts = rows.column(PROPERTIES)
    members = _members(tuple(fields), {field.column: rows.column(field.column) for field in fields})
    if members is None:
        return texts
    return pa.array(list(map(_cut, texts.to_pylist(), members.to_pylist())), pa.string())


def _cut(text: str | None, members: str) -> str | None:
    start = f"{{{members}"
    if not members or text is None or not text.startswith(start):
        return text
    following = text[len(start) : len(start) + 1]
    if following == ",":
        return "{" + text[len(start) + 1 :]
    return "{" + text[len(start) :] if following == "}" else text
