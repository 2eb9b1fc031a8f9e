"""The routes of queries, and reads whose answers caches may keep.

The tag of an answer stands for all that it depends on: see `query.identity`. It is found without reading a data file,
so a client with a current copy gets a 304, and a result that the lake keeps comes from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from alluvia.errors import AlluviaError, Invalid
from alluvia.operations.results.results import KeptResult, find_result, forget_result, keep_result
from alluvia.query.engine import Rendered
from alluvia.query.identity import identify
from alluvia.query.permitted import permitted
from alluvia.serverless.http import Response, failure
from alluvia.serverless.query_statements import has_writes
from alluvia.serverless.routes.query_fields import (
    ASYNC,
    BYTES_READ,
    CACHE,
    ELAPSED,
    FILES_READ,
    HIT,
    MISS,
    OFF,
    RESULT_BYTES,
)
from alluvia.sql.grammar.first_word import is_query

from .answering import (
    NO_STORE,
    VARY,
    AnswerForm,
    Caller,
    answer,
    elapsed,
    linked_limit,
    logger,
    result_headers,
    result_limit,
    run_query,
    still_there,
    stored_coding,
    success,
    tagged,
    wanted,
)
from .codings import CODINGS
from .large import linked
from .query_request import QUERY_HEADERS, QueryRequest, posted, shown


def read(caller: Caller) -> Response:
    """Answer a query in the query string or a header."""
    return answer_read(shown(caller.request), caller)


def read_by_hash(caller: Caller, name: str) -> Response:
    """Answer a query whose hash is in the path, so that a cache knows it by its path: `{SHA-256 of the text}.{form}`.

    Raises `Invalid` for the hash of another text.
    """
    given, _, suffix = name.partition(".")
    asked = shown(caller.request)
    expected = sha256(asked.text.encode("utf-8", "surrogatepass")).hexdigest()
    if given != expected:
        raise Invalid(f"the path must have the SHA-256 of the query's text: send GET /q/{expected}, or GET /q?query=…")
    return answer_read(replace(asked, format=suffix) if suffix else asked, caller)


def answer_read(asked: QueryRequest, caller: Caller) -> Response:
    """Answer a query that may only read, with 304 where its sender has the answer. Raises what the query raises."""
    headers = caller.request.headers
    wish = wanted(asked, headers)
    if has_writes(asked.text):
        return failure(405, "GET only reads: send statements that write by POST", Allow="POST")
    caller = _as_asked(caller)
    response = _in_ranges(asked, wish, caller) or _read(asked, wish, caller, headers.get("if-none-match", ""))
    by_header = [name for name in QUERY_HEADERS if name in headers]
    response["headers"]["Vary"] = ", ".join([VARY, *by_header])
    if caller.settings.keeps_results and {"ETag", "Content-Encoding"} & {*response["headers"]} == {"ETag"}:
        response["headers"]["Accept-Ranges"] = "bytes"
    return response


def _in_ranges(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> Response | None:
    """Answer a request for a range, or for the headers alone, where results are kept; None for another."""
    request, is_kept = caller.request, caller.settings.keeps_results and not asked.dry_run
    if not is_kept or ("range" not in request.headers and request.method != "HEAD"):
        return None
    from .ranges import answer_in_ranges, in_ranges  # which few requests need

    return answer_in_ranges(asked, wish, caller) if in_ranges(request) and is_query(asked.text) else None


def query(caller: Caller) -> Response:
    """Run the query or the statements of a POST, or take them in as a job.

    A read may be answered from a kept result, but for no cache in between.
    """
    request = caller.request
    asked = posted(request)
    wish = wanted(asked, request.headers)
    if asked.mode == ASYNC or "prefer" in request.headers:
        from .jobs import prefers_async, submit  # which few requests need

        if asked.mode == ASYNC or prefers_async(request):
            taken = submit(asked, wish, caller)
            if taken is not None:
                return taken
    if not caller.settings.keeps_results:
        return answer(asked, wish, caller)
    response = _read(asked, wish, _as_asked(caller))
    response["headers"].pop("ETag", None)
    response["headers"]["Cache-Control"] = NO_STORE
    return response


def _as_asked(caller: Caller) -> Caller:
    """Return the caller, whose request may ask for an answer that is neither a kept result nor kept."""
    asked = caller.request.headers.get("cache-control", "").lower()
    if not any(directive in asked for directive in ("no-cache", "no-store")):
        return caller
    return replace(caller, settings=replace(caller.settings, keeps_results=False))


def _read(asked: QueryRequest, wish: AnswerForm, caller: Caller, tags: str = "") -> Response:
    began_ms = caller.lake.clock.now_ms()
    key = key_now(asked, wish, caller) if is_query(asked.text) and not asked.dry_run else None
    if key is None:
        return answer(asked, wish, caller)
    cached = {"Cache-Control": caller.settings.cache_control, "ETag": f'"{key}"'}
    tag = next((tag for tag in _tags(tags) if tag in (key, *(f"{key}-{coding}" for coding in CODINGS))), None)
    if tag is not None:
        told = cached | {"ETag": f'"{tag}"', ELAPSED: elapsed(caller, began_ms)}
        return {"statusCode": 304, "headers": told, "body": "", "isBase64Encoded": False}
    kept = find_result(caller.lake.store, key) if caller.settings.keeps_results else None
    response = None if kept is None else _hit(kept, asked, wish, caller, cached)
    if response is not None:
        response["headers"][ELAPSED] = elapsed(caller, began_ms)
        return response
    known = (key, {} if kept is None else kept.links)
    return _run(asked, wish, caller, cached, known, began_ms)


def _hit(
    kept: KeptResult, asked: QueryRequest, wish: AnswerForm, caller: Caller, cached: dict[str, str]
) -> Response | None:
    """Return the answer that a kept result makes; None where it is too large for one, and no link would do."""
    told = {**kept.told, FILES_READ: "0", BYTES_READ: "0", CACHE: HIT} | cached
    if not kept.links:
        if len(kept.body) > result_limit(asked, caller):
            return None
        logger.info("answered from a kept result", extra={"bytes": len(kept.body)})
        return success(kept.body, wish, told)
    coding, most = stored_coding(wish), linked_limit(asked, caller)
    key = kept.links.get(coding or "")
    if key is None or most is None or int(told[RESULT_BYTES]) > most or not still_there(caller, key):
        return None
    logger.info("answered with a link to a kept result", extra={"bytes": int(told[RESULT_BYTES])})
    return linked(caller.lake, key, {"Vary": VARY, **tagged(told, coding)})


def _run(
    asked: QueryRequest,
    wish: AnswerForm,
    caller: Caller,
    cached: dict[str, str],
    known: tuple[str, Mapping[str, str]],
    began_ms: int,
) -> Response:
    """Run a query, keep its result, and answer. `known` are the links, by coding, that are kept under a key.

    The run may have read newer versions than the key stands for: then they lead to another result than its own.
    """
    rendered, large = run_query(asked, wish, caller)
    made_of, (key, links) = key_of(rendered, asked, wish), known
    told, coding = result_headers(rendered, caller.rights), stored_coding(wish)
    result = KeptResult(rendered.body, told)
    if large is not None and large.key is not None:
        told[RESULT_BYTES] = str(large.result_bytes)
        result = KeptResult(b"", told, {**(links if made_of == key else {}), coding or "": large.key})
    state = _kept(made_of, result, asked, wish, caller)
    logger.info("answered", extra={"bytes": int(told.get(RESULT_BYTES, len(rendered.body))), "cache": state})
    cached = cached | {"ETag": f'"{made_of}"'} if made_of else {"Cache-Control": NO_STORE}
    told = told | cached | {CACHE: state, ELAPSED: elapsed(caller, began_ms)}
    if large is not None and large.key is not None:
        return linked(caller.lake, large.key, {"Vary": VARY, **tagged(told, coding)})
    return success(rendered.body, wish, told)


def key_now(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> str | None:
    """Return what would stand for the answer if the query ran now; None if it may differ each time."""
    catalog = permitted(caller.lake.catalog, caller.rights)
    identity = identify(catalog, asked.text, caller.settings.limits, asked.parameters)
    return None if identity is None else identity.key(asked.text, asked.parameters, wish.form.name)


def key_of(rendered: Rendered, asked: QueryRequest, wish: AnswerForm) -> str | None:
    """Return what stands for an answer, by what the run has read: tables may have changed since it was looked for."""
    identity = rendered.identity()
    return None if identity is None else identity.key(asked.text, asked.parameters, wish.form.name)


def _kept(key: str | None, result: KeptResult, asked: QueryRequest, wish: AnswerForm, caller: Caller) -> str:
    """Keep a result where it has a key and the settings say so, and return what the header tells of it."""
    settings, store = caller.settings, caller.lake.store
    if not settings.keeps_results or key is None:
        return OFF
    if len(result.body) <= settings.kept_bytes_max:
        try:
            keep_result(store, key, result)
            # An erasure deletes results after it has changed the table: it saw this one, or this look sees the change.
            if not is_still(key, asked, wish, caller):
                forget_result(store, key)
        except AlluviaError:  # the answer is there, and need not wait for a store that does not take it
            logger.warning("a result could not be kept", exc_info=True)
            return OFF
    return MISS


def is_still(key: str, asked: QueryRequest, wish: AnswerForm, caller: Caller) -> bool:
    """Whether a key still identifies the answer to a query."""
    try:
        return key_now(asked, wish, caller) == key
    except AlluviaError:  # a version has expired, or a table is gone
        return False


def _tags(header: str) -> list[str]:
    """Return the tags of If-None-Match, without quotes. Weak ones are as good (RFC 9110, section 13.1.2)."""
    return [tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")]
