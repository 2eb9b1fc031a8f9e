"""The column `properties` as a variant: a table's schema and properties when they say so. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import orjson

from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import PROPERTIES_AS, VARIANT, VARIANT_SHREDDING
from alluvia.delta.schema.nesting import has_type
from alluvia.delta.schema.serialization import schema_fields
from alluvia.errors import Invalid

PROPERTIES = "properties"


def has_variant_properties(configuration: Mapping[str, str]) -> bool:
    """Whether a table's properties say that files hold `properties` as a variant."""
    return configuration.get(PROPERTIES_AS, "").lower() == VARIANT


def with_variant_properties(metadata: Metadata) -> Metadata:
    """Return the metadata of a new table, with a variant column if its properties ask for one.

    Raises `Invalid` where they do and `properties` is not a column of text.
    """
    if not has_variant_properties(metadata.configuration):
        return metadata
    whole = orjson.loads(metadata.schema_string)
    field = next((each for each in whole["fields"] if each["name"] == PROPERTIES), None)
    if field is None or field["type"] not in ("string", VARIANT) or PROPERTIES in metadata.partition_columns:
        raise Invalid(f"property {PROPERTIES_AS}: the table needs a column {PROPERTIES} of the type string for it")
    field["type"] = VARIANT
    configuration = {**metadata.configuration, VARIANT_SHREDDING: "true"}
    return replace(metadata, schema_string=orjson.dumps(whole).decode(), configuration=configuration)


def other_variants(schema_string: str) -> bool:
    """Whether a table has variants besides one column, which `properties` was when the table was created."""
    fields = schema_fields(schema_string)
    rest = [each for each in fields if each.get("type") != VARIANT]
    return len(fields) - len(rest) > 1 or has_type(rest, VARIANT)
