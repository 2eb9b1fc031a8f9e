"""What a request asks: one value, whichever form it comes in. Pure.

The fields of a request are the same everywhere: in a JSON body, in a form, in the query string, and in a direct
invocation. A body may also be the text of the query itself, as ClickHouse and Tinybird take it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote

from alluvia.errors import Invalid, cut
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.parameters import IN_A_HEADER, TOKEN, Parameters, from_json
from alluvia.serverless.http import Request

QUERY, PARAMETERS, FORMAT, DRY_RUN = "query", "parameters", "format", "dry_run"
MAX_BYTES, MAX_SECONDS, MAX_RESULT_BYTES = "max_bytes", "max_seconds", "max_result_bytes"
LIMIT_HEADERS = {MAX_BYTES: "Alluvia-Max-Bytes", MAX_SECONDS: "Alluvia-Max-Seconds"}
"""Headers that set the same limits: where the query string has the parameters of a published query, or for a proxy."""
LARGE, MODE = "large", "mode"
FIELDS = (QUERY, PARAMETERS, FORMAT, DRY_RUN, LARGE, MODE, MAX_BYTES, MAX_SECONDS, MAX_RESULT_BYTES)
LINK, ERROR = "link", "error"
SYNC, ASYNC = "sync", "async"
OTHER_NAMES = {"q": QUERY, "params": PARAMETERS}
"""Names that Tinybird and others have for the same."""
PARAM = "param_"
"""Before a parameter's name in a form or a query string, as ClickHouse has it."""
QUERY_HEADERS = ("alluvia-query", "x-alluvia-query", "x-seafowl-query")
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
TEXT_TYPES = ("text/plain", "application/sql")
FORMAT_HEADER, DEFAULT_FORMAT = "x-clickhouse-format", "default_format"
FIELDS_MAX = 1000
NAME_CHARS_MAX = 100
"""Of a name that is none: what is near to it takes time with the square of its length."""
_FORMAT_LAST = re.compile(r"(?i)\bFORMAT\s+\w+[\s;]*\Z")
_FIELD_FIRST = re.compile(rb"\s*\w+=")


class UnsupportedMediaType(Invalid):
    """A body is in a form that requests do not come in."""


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A text, the values of its parameters, and the name of the form that the answer is to have.

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


def posted(request: Request) -> QueryRequest:
    """Return what a POST asks: in its body, and in the query string. Raises `Invalid`, naming the field."""
    given, body = _fields_of_query_string(request), request.body()
    if body or QUERY not in given:
        sent = _fields_of_body(body, request.headers.get("content-type", ""))
        twice = next((name for name in sent if name in given and name != PARAMETERS), None)
        if twice is not None:
            raise Invalid(f"{twice}: send it in the body or in the query string, not in both")
        given = {**given, **sent, **_together(given.get(PARAMETERS), sent.get(PARAMETERS))}
    return limited(_formatted(request_of(given), request), request)


def shown(request: Request) -> QueryRequest:
    """Return what a GET asks: in the query string, or with the text in a header. Raises `Invalid`, naming the field."""
    given = _fields_of_query_string(request)
    if QUERY not in given:
        header = next((request.headers[name] for name in QUERY_HEADERS if name in request.headers), None)
        if header is None:
            raise Invalid("query: send GET /q?query=SELECT…, or the percent-encoded text in the header Alluvia-Query")
        given[QUERY] = _percent_decoded(header)
    asked = limited(_formatted(request_of(given), request), request)
    if asked.mode == ASYNC:
        raise Invalid(f"{MODE}: send {ASYNC} by POST")
    return asked


def _formatted(asked: QueryRequest, request: Request) -> QueryRequest:
    """Return what is asked with the form that a FORMAT clause or ClickHouse's header names. Raises `Invalid`."""
    header = request.headers.get(FORMAT_HEADER)
    if header is None and not _FORMAT_LAST.search(asked.text):
        return asked
    from .clickhouse import format_of, without_clause

    text, clause = without_clause(asked.text)
    form = clause or asked.format or (None if header is None else format_of(header))
    return replace(asked, text=text, format=form)


def limited(asked: QueryRequest, request: Request) -> QueryRequest:
    """Return what is asked within the limits of the headers, too: the lower one holds. Raises `Invalid`, naming one."""
    headers = {name: request.headers.get(header.lower()) for name, header in LIMIT_HEADERS.items()}
    if not any(headers.values()):
        return asked
    limits = {name: _number_or_none(LIMIT_HEADERS[name], value) for name, value in headers.items()}
    return replace(
        asked,
        max_bytes=_lower(asked.max_bytes, limits[MAX_BYTES]),
        max_seconds=_lower(asked.max_seconds, limits[MAX_SECONDS]),
    )


def _lower(*limits: int | None) -> int | None:
    return min((each for each in limits if each is not None), default=None)


def request_of(fields: Mapping[str, Any]) -> QueryRequest:
    """Return a request with some fields, by their own names. Raises `Invalid`, naming the field."""
    text, parameters, form, dry_run, large, mode, *limits = (fields.get(name) for name in FIELDS)
    if not isinstance(text, str):
        raise Invalid('query: send {"query": "SELECT …"}, with the text of one SELECT or of several statements')
    if not isinstance(parameters, list | dict | None):
        raise Invalid("parameters: send a list, with the values of ?, or an object, with those of $name")
    if not isinstance(form, str | None):
        raise Invalid("format: send the name of one, such as csv")
    if large not in (None, LINK, ERROR):
        raise Invalid(f"{LARGE}: send {LINK}, for a link to a result that is too large for an answer, or {ERROR}")
    if mode not in (None, SYNC, ASYNC):
        raise Invalid(f"{MODE}: send {ASYNC}, for a job whose result you fetch later, or {SYNC}")
    most = map(_number_or_none, (MAX_BYTES, MAX_SECONDS, MAX_RESULT_BYTES), limits)
    return QueryRequest(text, parameters, form, _is_true(DRY_RUN, dry_run), large or LINK, mode or SYNC, *most)


def _is_true(name: str, value: object) -> bool:
    """Return what a field says; a form and a query string have it as text. Raises `Invalid`, naming the field."""
    if value is None or value is False or value in ("false", "0"):
        return False
    if value is True or value in ("true", "1"):
        return True
    raise Invalid(f"{name}: send true or false")


def _number_or_none(name: str, value: object) -> int | None:
    """Return a limit; a form and a query string have it as text. Raises `Invalid`, naming the field."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
        value = int(value)
    if value is None or (type(value) is int and value > 0):
        return value
    raise Invalid(f"{name}: send a whole number above 0")


def named(fields: object) -> dict[str, Any]:
    """Return fields by their own names. Raises `Invalid`, naming it, for one that requests do not have."""
    if not isinstance(fields, dict):
        raise Invalid('query: send a JSON object, {"query": "SELECT …"}')
    found: dict[str, Any] = {}
    for name, value in fields.items():
        known = OTHER_NAMES.get(name, name)
        if name == DEFAULT_FORMAT and isinstance(value, str):
            from .clickhouse import format_of

            known, value = FORMAT, format_of(value)  # noqa: PLW2901
        if known not in FIELDS:
            raise Invalid(_unknown(name))
        if known in found:
            raise Invalid(f"{name}: send it once, as {known}")
        found[known] = value
    return found


def _unknown(name: str) -> str:
    if name == TOKEN:
        return IN_A_HEADER
    from difflib import get_close_matches  # only to say what is wrong

    nearest = get_close_matches(name[:NAME_CHARS_MAX].lower(), (*FIELDS, *OTHER_NAMES), 1, 0.5)
    hint = f" (did you mean {OTHER_NAMES.get(nearest[0], nearest[0])}?)" if nearest else ""
    return f"{cut(name, 100)} is not a field of a request{hint}: send {', '.join(FIELDS)}"


def _fields_of_query_string(request: Request) -> dict[str, Any]:
    return _text_fields(str(request.event.get("rawQueryString") or ""))


def _fields_of_body(data: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a body. Raises `Invalid`, `UnsupportedMediaType` for one in another form."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in TEXT_TYPES:
        return {QUERY: _text(data)}
    if media_type == FORM_TYPE:
        # What curl calls any body unless it is told otherwise. No SQL begins with a name and `=`, or with a brace.
        if _FIELD_FIRST.match(data):
            return _text_fields(_text(data))
        if not data.lstrip().startswith(b"{"):
            return {QUERY: _text(data)}
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
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise Invalid(f"the fields are not at most {FIELDS_MAX}, percent-encoded in UTF-8: send fewer") from None
    parameters: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in pairs:
        place, key = (parameters, name.removeprefix(PARAM)) if name.startswith(PARAM) else (others, name)
        if key in place:
            raise Invalid(f"{cut(name, 100)}: send it once")
        place[key] = value
    fields = named(others)
    if PARAMETERS in fields:
        try:
            fields[PARAMETERS] = from_json(fields[PARAMETERS])
        except ValueError as error:
            raise Invalid(f'parameters: send JSON, such as [1, 2] or {{"n": 1}} ({error})') from None
    return fields | _together(fields.get(PARAMETERS), parameters or None)


def _together(first: Any, second: Any) -> dict[str, Any]:
    """Return the field of parameters that come from two places. Raises `Invalid`, naming one that comes twice."""
    if first is None or second is None:
        found = second if first is None else first
        return {} if found is None else {PARAMETERS: found}
    if not isinstance(first, dict) or not isinstance(second, dict):
        raise Invalid("parameters: send them in one place, or by name")
    twice = next((name for name in second if name in first), None)
    if twice is not None:
        raise Invalid(f"parameters: send ${cut(twice, 100)} once")
    return {PARAMETERS: {**first, **second}}


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
