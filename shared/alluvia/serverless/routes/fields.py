"""Fields of requests. Each is declared once: its reader and the OpenAPI document go by the same declaration. Pure."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

Json = dict[str, Any]

TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
AT_LEAST_ONE: Json = {"type": "integer", "minimum": 1}
FLAG: Json = {"type": "boolean"}
IN_BODY, IN_QUERY, IN_HEADER, IN_PATH = "body", "query", "header", "path"
_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_DIGITS_MAX = 18
_WRONG = {"string": "send text", "integer": "send a whole number above 0", "boolean": "send true or false"}


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a request. `schema` has its type, bounds and default as JSON Schema.

    `wrong` says what to send instead of a value that does not fit; `{value}` in it stands for that value. `place` is
    where the field comes: in the query string unless it is said otherwise. `missing` says what to send where it is not
    given; None: it is optional. `documented` is what the OpenAPI document adds to the schema where the field's reader
    leaves the check to others, which have errors of their own.
    """

    name: str
    schema: Json
    description: str = ""
    wrong: str = ""
    place: str = IN_QUERY
    missing: str | None = None
    documented: Json = field(default_factory=dict)

    def read(self, value: object, *, as_json: bool = False) -> Any:
        """Return the value of the field, or its default for None. Raises `Invalid`, naming the field.

        Numbers and flags may also come as text, as a form and a query string have them, unless all is `as_json`.
        """
        if value is None:
            if self.missing is not None:
                raise Invalid(f"{self.name}: {self.missing}")
            return self.schema.get("default")
        converted = value if as_json or not isinstance(value, str) else self._from_text(value)
        if not self.fits(converted):
            raise self.refusal(value)
        return converted

    def fits(self, value: object) -> bool:
        """Whether a value is of the field's type and within its bounds."""
        schema, kinds = self.schema, self.schema["type"]
        if not any(type(value) is _TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)):
            return False
        if isinstance(value, int):
            return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
        return value in schema.get("enum", [value])

    def refusal(self, value: object) -> Invalid:
        """Return the error for a value that does not fit."""
        wrong = self.wrong or _WRONG[self.schema["type"]]
        return Invalid(f"{self.name}: {wrong.replace('{value}', f'{value!r:.100}')}")

    def _from_text(self, text: str) -> object:
        kind = self.schema["type"]
        if kind == "boolean":
            return _FLAGS.get(text, text)
        if kind == "integer" and text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX:
            return int(text)
        return text


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A JSON object: its description, `what` it is in errors, an example, its fields, and its most bytes."""

    description: str
    what: str
    example: str
    fields: tuple[RequestField, ...]
    bytes_max: int = 10_000
    required: bool = True


def in_path(name: str, description: str, schema: Json = TEXT) -> RequestField:
    """Return a part of a path."""
    return RequestField(name, schema, description, place=IN_PATH, missing="send it")


def in_header(name: str, description: str, schema: Json = TEXT) -> RequestField:
    """Return a header."""
    return RequestField(name, schema, description, place=IN_HEADER)


def schema_of(field: RequestField) -> Json:
    """Return the schema of a field, as a property of an object."""
    return field.schema | field.documented | ({"description": field.description} if field.description else {})
