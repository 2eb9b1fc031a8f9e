"""Published queries: `GET /v1/queries/{name}.{form}`, with the values of their parameters in the query string."""

from __future__ import annotations

from urllib.parse import parse_qsl

from alluvia.errors import Invalid, cut
from alluvia.query.declared import VERSION, values_of
from alluvia.serverless.http import Request, Response, failure

from .answering import NO_STORE, Caller
from .asking import FIELDS_MAX, QueryRequest, limited
from .reading import answer_read


def run_published(request: Request, name: str, caller: Caller) -> Response:
    """Run a published query with the rights of the caller, and answer as `GET /q` does. Raises what that raises."""
    from alluvia.query.published import find_published

    title, _, form = name.partition(".")
    given = _given(request)
    number = given.pop(VERSION, None)
    if number is not None and not (number.isascii() and number.isdecimal() and len(number) <= 18):
        raise Invalid(f"{VERSION}: {number!r:.100} must be the number of a version")
    found = find_published(caller.lake.store, title, None if number is None else int(number))
    if found is None:
        which = "" if number is None else f"version {number} of "
        reason = f"there is no {which}published query {cut(title, 100)!r}: `alluvia published` lists them"
        return failure(404, reason, **{"Cache-Control": NO_STORE})
    asked = QueryRequest(found.query, values_of(found.parameters, given), form or None)
    return answer_read(request, limited(asked, request), caller)


def _given(request: Request) -> dict[str, str]:
    """Return the fields of the query string. Raises `Invalid`, naming one that comes twice."""
    text = str(request.event.get("rawQueryString") or "")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise Invalid(f"the parameters are not at most {FIELDS_MAX}, percent-encoded in UTF-8: send fewer") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise Invalid(f"{cut(name, 100)}: send it once")
        given[name] = value
    return given
