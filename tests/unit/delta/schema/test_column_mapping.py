from __future__ import annotations

import json
from typing import Any

import pytest

from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.protocols import check_readable
from alluvia.delta.schema.column_mapping import ColumnMapping, identities, mapping_of, physical_schema
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.schema.unified import check_type_changes, is_wider
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNull, Or, Unknown, physical_predicate
from alluvia.errors import Corrupt, Unsupported


def field(name: str, kind: Any, identity: Any = None, physical: Any = None) -> dict[str, Any]:
    metadata = {"delta.columnMapping.id": identity, "delta.columnMapping.physicalName": physical}
    return {
        "name": name,
        "type": kind,
        "nullable": True,
        "metadata": {k: v for k, v in metadata.items() if v is not None},
    }


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


TEXT = json.dumps(
    struct(
        field("id", "long", 1, "col-1"),
        field("s", struct(field("x", "long", 3, "col-3"), field("v", "void", 8, "col-8")), 2, "col-2"),
        field("l", array(struct(field("y", "string", 5, "col-5"))), 4, "col-4"),
        field("nothing", "void", 7, "col-7"),
    )
)


def metadata(mode: str | None, text: str = TEXT) -> Metadata:
    return Metadata("t", text, configuration={} if mode is None else {"delta.columnMapping.mode": mode})


@pytest.mark.parametrize(
    ("protocol", "mode", "expected"),
    [
        (Protocol(2, 5), "name", ColumnMapping.NAME),
        (Protocol(2, 7, None, ("columnMapping",)), "id", ColumnMapping.ID),
        (Protocol(3, 7, ("columnMapping",), ("columnMapping",)), "ID", ColumnMapping.ID),
        (Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)), "name", ColumnMapping.NONE),
        (Protocol(1, 2), "name", ColumnMapping.NONE),
        (Protocol(2, 5), "none", ColumnMapping.NONE),
        (Protocol(2, 5), None, ColumnMapping.NONE),
    ],
)
def test_the_property_counts_where_the_protocol_has_the_feature(
    protocol: Protocol, mode: str | None, expected: ColumnMapping
) -> None:
    assert mapping_of(protocol, metadata(mode)) is expected


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(Unsupported, match="column mapping is 'colour'"):
        check_readable(Protocol(2, 5), metadata("colour"))


def test_a_physical_schema_has_the_shape_of_the_tables_own() -> None:
    logical, physical = arrow_schema(TEXT), physical_schema(TEXT, ColumnMapping.ID)
    assert logical.names == ["id", "s", "l"]
    assert physical.names == ["col-1", "col-2", "col-4"]
    assert logical.field("s").type.field(0).name == "x"
    assert physical.field(1).type.field(0).name == "col-3"
    assert identities(physical) == {("col-1", 1), ("col-2", 2), ("col-3", 3), ("col-4", 4), ("col-5", 5)}
    assert physical_schema(TEXT, ColumnMapping.NONE).equals(logical)


def test_a_column_without_an_id_is_damage_where_ids_count() -> None:
    text = json.dumps(struct(field("a", "long")))
    assert physical_schema(text, ColumnMapping.NAME).names == ["a"]
    with pytest.raises(Corrupt, match=r"columnMapping.id"):
        physical_schema(text, ColumnMapping.ID)
    for broken in (field("a", "long", "one", "x"), field("a", "long", 1, 5)):
        with pytest.raises(Corrupt, match="columnMapping"):
            physical_schema(json.dumps(struct(broken)), ColumnMapping.NAME)


def test_a_predicate_gets_the_names_that_statistics_have() -> None:
    logical, physical = arrow_schema(TEXT), physical_schema(TEXT, ColumnMapping.NAME)
    predicate = And((Comparison(("s", "x"), "<", 5), Or((IsNull(("id",)), In(("none",), (1,)), Unknown()))))
    assert physical_predicate(predicate, logical, physical) == And(
        (Comparison(("col-2", "col-3"), "<", 5), Or((IsNull(("col-1",)), Unknown(), Unknown())))
    )
    assert isinstance(physical_predicate(IsNull(("id", "x")), logical, physical), Unknown)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("byte", "short"), ("short", "long"), ("integer", "double"), ("float", "double"), ("date", "timestamp_ntz")),
        *(("decimal(5,2)", "decimal(7,4)"), ("integer", "decimal(10,0)"), ("long", "decimal(22,2)")),
    ],
)
def test_a_wider_type_is_read(before: str, after: str) -> None:
    assert is_wider(before, after)
    assert not is_wider(after, before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(
            ("long", "double"),
            ("string", "integer"),
            ("date", "timestamp"),
            ("double", "float"),
            ("float", "decimal(10,2)"),
        ),
        *(("decimal(5,2)", "decimal(6,4)"), ("integer", "decimal(10,1)"), ("long", "decimal(19,0)"), ("None", "long")),
    ],
)
def test_another_change_of_type_is_refused_with_the_columns_name(before: str, after: str) -> None:
    inner = field("x", after)
    inner["metadata"]["delta.typeChanges"] = [{"fromType": before, "toType": after}]
    text = json.dumps(struct(field("s", array(struct(inner)))))
    protocol = Protocol(3, 7, ("typeWidening",), ("typeWidening",))
    with pytest.raises(Unsupported, match=r"column s\.x once changed its type"):
        check_readable(protocol, metadata(None, text))
    check_readable(Protocol(1, 2), metadata(None, text))


def test_no_change_of_type_is_none_to_refuse() -> None:
    check_type_changes(TEXT)
