"""The request of a query, from a JSON body, a form, the query string, a header or a direct invocation. Pure.

A body may also be the text of the query itself, as ClickHouse and Tinybird take it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote

from alluvia.errors import Invalid, cut
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import did_you_mean, nearest
from alluvia.query.parameters import IN_A_HEADER, TOKEN, Parameters, from_json
from alluvia.query.typed_parameters import to_parameters
from alluvia.serverless.http import Request, UnsupportedMediaType
from alluvia.serverless.routes.fields import IN_QUERY, JsonBody, RequestField
from alluvia.serverless.routes.query_fields import (
    ASYNC,
    FIELDS,
    FORM_TYPE,
    FORMAT,
    JSON_TYPE,
    LIMIT_HEADERS,
    LINK,
    MODE,
    OTHER_NAMES,
    PARAM,
    PARAMETERS,
    QUERY,
    QUERY_HEADER,
    SYNC,
    TEXT_TYPES,
)
from alluvia.serverless.routes.route import Route

NAMES = tuple(field.name for field in FIELDS)
QUERY_HEADERS = (QUERY_HEADER.lower(), "x-alluvia-query", "x-seafowl-query")
FORMAT_HEADER, DEFAULT_FORMAT = "x-clickhouse-format", "default_format"
CLICKHOUSE_FORMATS = {
    "JSONEachRow": "ndjson",
    "CSVWithNames": "csv",
    "TabSeparatedWithNames": "tsv",
    "TSVWithNames": "tsv",
    "Parquet": "parquet",
    "ArrowStream": "arrow",
}
"""ClickHouse's names of formats that answers have here, too. Its JSON, CSV and TSV are other formats than ours."""
FIELDS_MAX = 1000
_FORMAT_LAST = re.compile(r"(?i)\bFORMAT\s+(?P<name>[A-Z]\w*)[\s;]*\Z")
_FIELD_FIRST = re.compile(rb"\s*\w+=")
_NAMES_FOLLOW = frozenset(("FROM", "JOIN", "SELECT", "DISTINCT", "ALL", "ZONE", "COLLATE", "TABLE", "AS", "BY"))
"""Words after which FORMAT is a name, and not a clause."""


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A text, the values of its parameters, and the name of the answer's format: `FIELDS`, as they were read.

    `dry_run` asks what the query would read, instead of its rows. `large` says what a result is answered with that is
    too large for an answer: a link, or an error. `mode` says whether the sender waits. `max_bytes` of files,
    `max_seconds` and `max_result_bytes` are limits.
    """

    text: str
    parameters: Parameters | None = None
    format: str | None = None
    dry_run: bool = False
    large: str = LINK
    mode: str = SYNC
    max_bytes: int | None = None
    max_seconds: int | None = None
    max_result_bytes: int | None = None
    delimiter: str | None = None
    decimal_separator: str | None = None
    bom: bool = False


def posted(request: Request) -> QueryRequest:
    """Return what a POST asks: in its body, and in the query string. Raises `Invalid`, naming the field."""
    given, body = _fields_of_query_string(request), request.body()
    if body or QUERY.name not in given:
        sent = _fields_of_body(body, request.headers.get("content-type", ""))
        twice = next((name for name in sent if name in given and name != PARAMETERS.name), None)
        if twice is not None:
            raise Invalid(f"{twice}: send it in the body or in the query string, not in both")
        given = {**given, **sent, **_together(given.get(PARAMETERS.name), sent.get(PARAMETERS.name))}
    return limited(_formatted(request_of(given), request), request)


def shown(request: Request) -> QueryRequest:
    """Return what a GET asks: in the query string, or with the text in a header. Raises `Invalid`, naming the field."""
    given = _fields_of_query_string(request)
    if QUERY.name not in given:
        header = next((request.headers[name] for name in QUERY_HEADERS if name in request.headers), None)
        if header is None:
            raise Invalid("query: send GET /q?query=SELECT…, or the percent-encoded text in the header Alluvia-Query")
        given[QUERY.name] = _percent_decoded(header)
    asked = limited(_formatted(request_of(given), request), request)
    if asked.mode == ASYNC:
        raise Invalid(f"{MODE.name}: send {ASYNC} by POST")
    return asked


def _formatted(asked: QueryRequest, request: Request) -> QueryRequest:
    """Return what is asked with the format of a FORMAT clause or of ClickHouse's header. Raises `Invalid`."""
    header = request.headers.get(FORMAT_HEADER)
    if header is None and not _FORMAT_LAST.search(asked.text):
        return asked
    text, clause = without_clause(asked.text)
    form = clause or asked.format or (None if header is None else format_of(header))
    return replace(asked, text=text, format=form)


def format_of(name: str) -> str:
    """Return our name of a format of ClickHouse's. Raises `Invalid` for one that answers do not have."""
    our_name = next((ours for theirs, ours in CLICKHOUSE_FORMATS.items() if theirs.lower() == name.lower()), None)
    if our_name is None:
        offered = ", ".join(CLICKHOUSE_FORMATS)
        raise Invalid(
            f"FORMAT {cut(name, 50)}: of ClickHouse's formats, answers come in {offered}. For others, leave it out and "
            "send format=json (an array), csv or tsv (with a header row)"
        )
    return our_name


def without_clause(text: str) -> tuple[str, str | None]:
    """Return a query without the FORMAT clause at its end, and our name of the format; None if it has no clause.

    DuckDB has no such clause: a text with one is never a query of its own. Raises `Invalid` for other formats.
    """
    match = _FORMAT_LAST.search(text)
    if match is None or "--" in text.rstrip().rpartition("\n")[2]:
        return text, None
    before = text[: match.start()].rstrip()
    word = re.search(r"\w+\Z", before[-100:])
    ends = before[-1:] in tuple(")]}'\"") if word is None else word[0].upper() not in _NAMES_FOLLOW
    return (before, format_of(match["name"])) if ends else (text, None)


def limited(asked: QueryRequest, request: Request) -> QueryRequest:
    """Return what is asked within the limits of the headers, too: the lower one holds. Raises `Invalid`, naming one."""
    size, seconds = (field.read(request.headers.get(field.name.lower()) or None) for field in LIMIT_HEADERS)
    if size is None and seconds is None:
        return asked
    return replace(asked, max_bytes=_lower(asked.max_bytes, size), max_seconds=_lower(asked.max_seconds, seconds))


def _lower(*limits: int | None) -> int | None:
    return min((each for each in limits if each is not None), default=None)


def request_of(fields: Mapping[str, Any]) -> QueryRequest:
    """Return a request with some fields, by their own names. Raises `Invalid`, naming the field."""
    if fields.get(QUERY.name) is None:
        raise QUERY.refusal(None)
    values = {field.name: field.read(fields.get(field.name)) for field in FIELDS}
    values[PARAMETERS.name] = to_parameters(values[PARAMETERS.name])
    return QueryRequest(*values.values())


def named(fields: object) -> dict[str, Any]:
    """Return fields by their own names. Raises `Invalid`, naming it, for one that requests do not have."""
    if not isinstance(fields, dict):
        raise Invalid('query: send a JSON object, {"query": "SELECT …"}')
    values: dict[str, Any] = {}
    for name, value in fields.items():
        known = OTHER_NAMES.get(name, name)
        if name == DEFAULT_FORMAT and isinstance(value, str):
            known, value = FORMAT.name, format_of(value)  # noqa: PLW2901
        if known not in NAMES:
            raise Invalid(_unknown(name))
        if known in values:
            raise Invalid(f"{name}: send it once, as {known}")
        values[known] = value
    return values


def _unknown(name: str) -> str:
    if name == TOKEN:
        return IN_A_HEADER
    near = nearest(name, (*NAMES, *OTHER_NAMES))
    hint = f" (did you mean {OTHER_NAMES.get(near[0], near[0])}?)" if near else ""
    return f"{cut(name, 100)} is not a field of a request{hint}: send {', '.join(NAMES)}"


def _fields_of_query_string(request: Request) -> dict[str, Any]:
    return _text_fields(request.query_string)


def _fields_of_body(data: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a body. Raises `Invalid`, `UnsupportedMediaType` for one in another form."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in TEXT_TYPES:
        return {QUERY.name: _text(data)}
    if media_type == FORM_TYPE:
        # curl calls any body a form by default. No SQL begins with a name and `=`, or with a brace.
        if _FIELD_FIRST.match(data):
            return _text_fields(_text(data))
        if not data.lstrip().startswith(b"{"):
            return {QUERY.name: _text(data)}
    elif media_type not in ("", JSON_TYPE):
        raise UnsupportedMediaType(
            f'Content-Type: send {JSON_TYPE}, with {{"query": "SELECT …"}}, text/plain, with the text of the query, '
            f"or {FORM_TYPE}, with query=SELECT…"
        )
    try:
        return named(from_json(data))
    except ValueError as error:
        raise Invalid(f'the body is not JSON ({error}): send {{"query": "SELECT …"}}') from None


def _text_fields(text: str) -> dict[str, Any]:
    """Return the fields of a form or a query string. Parameters are text, unless all come as JSON."""
    parameters: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in pairs_of(text, "fields"):
        place, key = (parameters, name.removeprefix(PARAM)) if name.startswith(PARAM) else (others, name)
        if key in place:
            raise Invalid(f"{cut(name, 100)}: send it once")
        place[key] = value
    fields = named(others)
    if PARAMETERS.name in fields:
        try:
            fields[PARAMETERS.name] = from_json(fields[PARAMETERS.name])
        except ValueError as error:
            raise Invalid(f'parameters: send JSON, such as [1, 2] or {{"n": 1}} ({error})') from None
    return fields | _together(fields.get(PARAMETERS.name), parameters or None)


def _together(first: Any, second: Any) -> dict[str, Any]:
    """Return the field of parameters that come from two places. Raises `Invalid`, naming one that comes twice."""
    if first is None or second is None:
        value = second if first is None else first
        return {} if value is None else {PARAMETERS.name: value}
    if not isinstance(first, dict) or not isinstance(second, dict):
        raise Invalid("parameters: send them in one place, or by name")
    twice = next((name for name in second if name in first), None)
    if twice is not None:
        raise Invalid(f"parameters: send ${cut(twice, 100)} once")
    return {PARAMETERS.name: {**first, **second}}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Invalid("the body must be UTF-8 text: send the query in UTF-8") from None


def _percent_decoded(header: str) -> str:
    try:
        return unquote(header, errors="strict")
    except UnicodeDecodeError:
        raise Invalid("Alluvia-Query: percent-encode the UTF-8 text of the query") from None


def pairs_of(text: str, what: str) -> list[tuple[str, str]]:
    """Return the names and values of a form or a query string. Raises `Invalid`."""
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise Invalid(f"the {what} are not at most {FIELDS_MAX}, percent-encoded in UTF-8: send fewer") from None


def values_by_name(request: Request) -> dict[str, str]:
    """Return the fields of the query string. Raises `Invalid`, naming one that comes twice."""
    given: dict[str, str] = {}
    for name, value in pairs_of(request.query_string, "parameters"):
        if name in given:
            raise Invalid(f"{cut(name, 100)}: send it once")
        given[name] = value
    return given


def read_fields(request: Request, fields: Sequence[RequestField], hint: str = "") -> dict[str, Any]:
    """Return the values of some fields of the query string. Raises `Invalid`, naming it, for another one."""
    given, known = values_by_name(request), [field.name for field in fields]
    other = next((name for name in given if name not in known), None)
    if other is not None:
        near = did_you_mean(other, known)
        raise Invalid(f"{cut(other, 100)} is not a field of this request{f' ({near})' if near else ''}{hint}")
    return {field.name: field.read(given.get(field.name)) for field in fields}


def read_object(request: Request, body: JsonBody) -> dict[str, Any]:
    """Return the values of a JSON body's fields. Raises `Invalid`, naming the field, and `UnsupportedMediaType`."""
    data = request.body()
    if not data and not body.required:
        return {field.name: field.read(None) for field in body.fields}
    media_type = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
    if media_type != JSON_TYPE and not (media_type == FORM_TYPE and data.lstrip().startswith(b"{")):  # as curl calls it
        raise UnsupportedMediaType(f"Content-Type: send {JSON_TYPE}, with {body.example}")
    if len(data) > body.bytes_max:
        raise Invalid(f"the body has more than {body.bytes_max} bytes: send a shorter one, such as {body.example}")
    try:
        fields = from_json(data)
    except ValueError as error:
        raise Invalid(f"the body is not JSON ({error}): send {body.example}") from None
    if not isinstance(fields, dict):
        raise Invalid(f"the body must be a JSON object: send {body.example}")
    known = [field.name for field in body.fields]
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        near = did_you_mean(unknown, known)
        hint = f" ({near})" if near else ""
        raise Invalid(f"{cut(unknown, 100)} is not a field of {body.what}{hint}: send {body.example}")
    return {field.name: field.read(fields.get(field.name), as_json=True) for field in body.fields}


def given_by_name(request: Request, route: Route) -> dict[str, Any]:
    """Return the fields that the taker of a route gets by their names. Raises `Invalid`, `UnsupportedMediaType`."""
    values: dict[str, Any] = {}
    if route.only is not None:
        values |= read_fields(request, [field for field in route.fields if field.place == IN_QUERY], route.only)
    if route.json_body:
        from alluvia.serverless.routes.bodies import JSON_BODIES  # which few requests need

        values |= read_object(request, JSON_BODIES[route.json_body])
    return values
