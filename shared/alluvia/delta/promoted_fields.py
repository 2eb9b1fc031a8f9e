"""Promoted fields: columns that hold what events have in `properties` under a key. Pure.

A column that is added to a table with a text column `properties` says in its field's metadata under which key events
have it. A file that this library has written since has the value once, in the column: `moved` takes the key out of the
text. The add of such a file has a tag. In a file without it, of earlier or of other writers, a value may lie in either
place. Readers see one form of both, `shown`: the column has the value, and the text has the field as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile, Metadata
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
_SPACE = " \t\r\n"
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that JSON writes as escapes."""
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
    if fields.get(PROPERTIES, {}).get("type") != "string":
        return ()
    promoted = []
    for name, field in fields.items():
        metadata = field.get("metadata")
        if not isinstance(metadata, dict) or name not in schema.names:
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
    if not any(field["name"] == PROPERTIES and field["type"] == "string" for field in whole["fields"]):
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
    unmoved = [field for field in promoted if not field.is_moved(file)]
    read = _read(texts, unmoved)
    columns = dict(stored)
    for field in unmoved:
        if field.column in read:
            columns[field.column] = pc.coalesce(stored[field.column], read[field.column])
    for field in unmoved:
        texts = _without_beside(texts, field, stored[field.column])
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
    read = _read(texts, fields)
    columns: dict[str, pa.Array] = {}
    for field in fields:
        stored = columns[field.column] = rows.column(field.column)
        texts = _without_beside(texts, field, stored)
        if field.column in read:
            columns[field.column] = pc.coalesce(stored, read[field.column])
            texts = _without(texts, field, pc.and_not(pc.is_valid(read[field.column]), pc.is_valid(stored)))
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

    A field whose column got one is what that says, also null. Of the others, where the text is new, it says all.
    """
    if not promoted or {PROPERTIES, *(field.column for field in promoted)}.isdisjoint(given):
        return rows
    for field in promoted:
        if field.column in given:
            texts = _without(rows.column(PROPERTIES).combine_chunks(), field)
            rows = rows.set_column(rows.schema.get_field_index(PROPERTIES), rows.schema.field(PROPERTIES), texts)
        elif PROPERTIES in given:
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


def _read(texts: pa.Array, fields: Sequence[PromotedField]) -> dict[str, pa.Array]:
    """Return the columns of some fields of texts, by the rules of ingestion: null where there is none that fits.

    Fields that no text has are left out.
    """
    columns: dict[str, pa.Array] = {}
    for field in fields:
        masks = _may_have(texts, field)
        places = pc.indices_nonzero(masks)
        if not len(places):
            continue
        from alluvia.json_values.convert import column  # loads what parses, which few batches need
        from alluvia.json_values.members import values_of

        values = values_of(texts.take(places).to_pylist(), field.key)
        found, _ = column(pa.field(field.column, field.kind), values)
        numbers = pa.array(range(len(found)), pa.int64())
        columns[field.column] = found.take(pc.replace_with_mask(pa.nulls(len(texts), pa.int64()), masks, numbers))
    return columns


def _without(texts: pa.Array, field: PromotedField, wanted: pa.BooleanArray | None = None) -> pa.Array:
    """Return texts without the key of a field, in the rows of a mask or in all."""
    masks = _may_have(texts, field)
    if wanted is not None:
        masks = pc.and_(masks, wanted)
    places = pc.indices_nonzero(masks)
    if not len(places):
        return texts
    from alluvia.json_values.members import without_member

    cut = without_member(texts.take(places).to_pylist(), field.key)
    return pc.replace_with_mask(texts, masks, pa.array(cut, pa.string()))


def _without_beside(texts: pa.Array, field: PromotedField, column: pa.Array) -> pa.Array:
    """Return texts without the key of a field where its column has a value. Another value than that is kept aside."""
    masks = pc.and_(pc.is_valid(column), _may_have(texts, field))
    places = pc.indices_nonzero(masks)
    if not len(places):
        return texts
    from alluvia.json_values.convert import column as converted
    from alluvia.json_values.members import values_of, with_member_aside, without_member

    sent = texts.take(places).to_pylist()
    values = values_of(sent, field.key)
    found, _ = converted(pa.field(field.column, field.kind), values)
    own = column.take(places).to_pylist()
    cut = [
        one if value is None or other == mine else with_member_aside(text, field.key)
        for text, one, value, other, mine in zip(
            sent, without_member(sent, field.key), values, found.to_pylist(), own, strict=True
        )
    ]
    return pc.replace_with_mask(texts, masks, pa.array(cut, pa.string()))


def spliced(texts: pa.Array, promoted: Promoted, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return texts with the columns' values in front, as members; a text of anything but an object stays as it is."""
    members = _members(promoted, columns)
    if members is None:
        return texts
    given = pc.utf8_ltrim(pc.fill_null(texts, "{}"), characters=_SPACE)
    rest = pc.utf8_slice_codeunits(given, 1)
    empty = pc.starts_with(pc.utf8_ltrim(rest, characters=_SPACE), "}")
    comma = pc.if_else(empty, _text(""), _text(","))
    new = pc.binary_join_element_wise(_text("{"), members, comma, rest, _text(""))
    return pc.if_else(pc.and_(pc.not_equal(members, _text("")), pc.starts_with(given, "{")), new, texts)


def _members(promoted: Promoted, columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """Return the members of an object that rows' fields are, as JSON text; None if no row has any."""
    parts: list[pa.Array] = []
    for field in promoted:
        column = columns[field.column]
        if column.null_count < len(column):
            member = _text(f"{field.member}:")
            parts.append(pc.binary_join_element_wise(member, json_texts(column), _text(","), _text("")))
    if not parts:
        return None
    # Arrow leaves out rows of nulls alone where it is to skip nulls.
    joined = pc.binary_join_element_wise(parts[0], *parts[1:], _text(""), null_handling="replace")
    return pc.utf8_rtrim(joined, characters=",")


def json_texts(column: pa.Array) -> pa.Array:
    """Return values as JSON text, like in results; null for NaN and infinity."""
    if pa.types.is_string(column.type) and not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return pc.binary_join_element_wise(_text('"'), column, _text('"'), _text(""))
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    from alluvia.json_values.plain import plain_values

    texts = [None if value is None else orjson.dumps(value).decode() for value in plain_values(column)]
    return pa.array([None if text == "null" else text for text in texts], pa.string())


def _text(text: str) -> pa.Scalar:
    """Return an Arrow scalar of a text. Arrow's own conversion of Python's texts loads further packages."""
    return pa.scalar(text, pa.string())


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
