"""Answers in ranges, and to HEAD: what readers of Parquet files, such as DuckDB and Polars, ask of a URL.

The first request of a reader keeps the result of its query in the lake; each range is cut out of that one, and the
query does not run again. Most readers do not say which version of a result they have begun with: `operations.results.
reads` knows it. A query whose answer may differ each time is read in the same way, as one result for each reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

import orjson

from alluvia.access.claims import plain_grant
from alluvia.errors import AlluviaError, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.reads import GOES_ON_MS, Read, find_read, keep_read
from alluvia.operations.results.results import KeptResult, erased_since, find_result, forget_result, keep_result
from alluvia.serverless.byte_ranges import begins, byte_range, content_range, is_range
from alluvia.serverless.http import BRANCH_HEADER, Request, Response, failure
from alluvia.serverless.routes.query_fields import BYTES_READ, CACHE, ELAPSED, FILES_READ, HIT, MISS, RESULT_BYTES
from alluvia.store import ObjectInfo

from .answering import (
    NO_STORE,
    VARY,
    AnswerForm,
    Caller,
    elapsed,
    logger,
    part,
    result_headers,
    result_limit,
    run_query,
    success,
)
from .large import has_links, linked
from .queries import is_still, key_now, key_of
from .query_request import QueryRequest

_OF_ONE_READER = "read-"
"""How tags of results begin that are kept for one reader alone."""


def in_ranges(request: Request) -> bool:
    """Whether a request is one of those by which a result is read in ranges."""
    if "if-none-match" in request.headers:
        return False
    return request.method == "HEAD" or is_range(request.headers.get("range", ""))


@dataclass(frozen=True, slots=True)
class _Result:
    """A kept result with its tag, its size and, if it is too large for an answer, its object."""

    tag: str
    kept: KeptResult
    size: int
    object: ObjectInfo | None = None
    cache: str = HIT

    @property
    def lasts(self) -> bool:
        """Whether the tag covers everything that the result depends on, so that caches can revalidate by it."""
        return not self.tag.startswith(_OF_ONE_READER)


def answer_in_ranges(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> Response:
    """Answer a request for a range, or for the headers. Raises what the query raises."""
    request, store, now_ms = caller.request, caller.lake.store, caller.lake.clock.now_ms()
    wish, header = AnswerForm(wish.form), request.headers.get("range", "")  # ranges count bytes before coding
    name, starts = _name(asked, wish, caller), request.method == "HEAD" or begins(header)
    read, if_range = find_read(store, name), request.headers.get("if-range")
    same = if_range is None or (read is not None and if_range == f'"{read.key}"')
    result = None
    if read is not None and same and read.serves(now_ms, begins=starts and if_range is None):
        result = _found(read.key, caller)
    if result is not None and read is not None:
        if not starts and read.is_to_note(now_ms):
            _note(caller, name, replace(read, used_ms=now_ms))
    else:
        result = _current(asked, wish, caller)
        if read is None or read.key != result.tag or now_ms - read.began_ms > GOES_ON_MS // 2:
            since_ms = caller.lake.clock.now_ms()  # the query may have run for long: the reader goes on from here
            _note(caller, name, Read(result.tag, since_ms, since_ms))
    response = _sent(result, header if if_range in (None, f'"{result.tag}"') else "", asked, wish, caller)
    response["headers"][ELAPSED] = elapsed(caller, now_ms)
    return response


def _name(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> str:
    """Return a name for a reader and its query. No other caller, and no caller with other rights, has the same name."""
    context, rights = caller.request.event["requestContext"]["http"], caller.rights
    grants = None if rights is None else [rights.key, rights.subject, *map(plain_grant, rights.grants)]
    who = [context.get("sourceIp", ""), caller.request.headers.get("user-agent", ""), grants]
    values = asked.parameters
    shown = repr(sorted(values.items()) if isinstance(values, Mapping) else values)  # with their types
    what = [asked.text, shown, wish.form.name, caller.request.headers.get(BRANCH_HEADER.lower(), "")]
    return sha256(orjson.dumps([who, what])).hexdigest()


def _found(tag: str, caller: Caller) -> _Result | None:
    """Return a kept result by its tag; None if it is gone. A GET, and a HEAD for a large one."""
    kept = find_result(caller.lake.store, tag)
    return None if kept is None else _with_size(tag, kept, caller, HIT)


def _with_size(tag: str, kept: KeptResult, caller: Caller, cache: str) -> _Result | None:
    if not kept.links:
        return _Result(tag, kept, len(kept.body), None, cache)
    key = kept.links.get("")
    found = None if key is None else caller.lake.store.head(key)
    return None if found is None or not found.size else _Result(tag, kept, found.size, found, cache)


def _current(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> _Result:
    """Return the result of a query as the lake is now: a kept one, or else the query runs, and its result is kept."""
    key = key_now(asked, wish, caller)
    known = None if key is None else find_result(caller.lake.store, key)
    found = None if key is None or known is None else _with_size(key, known, caller, HIT)
    if found is not None:
        return found
    rendered, large = run_query(asked, wish, _keeping(caller))
    made_of = key_of(rendered, asked, wish)
    told, body, links = result_headers(rendered, caller.rights), rendered.body, {}
    if large is not None and large.key is not None:
        links = {**(known.links if known is not None and made_of == key else {}), "": large.key}
        told[RESULT_BYTES], body = str(large.result_bytes), b""
    kept, store = KeptResult(body, told, links), caller.lake.store
    tag = made_of or f"{_OF_ONE_READER}{caller.lake.clock.new_id()}"
    try:
        keep_result(store, tag, kept)
        # An erasure deletes results after it has changed the table: it saw this one, or this look sees the change.
        if made_of is None:
            gone = erased_since(caller.lake.catalog, rendered.read)
        else:
            gone = not is_still(tag, asked, wish, caller)
        if gone:
            forget_result(store, tag)
    except AlluviaError:  # the answer is there: a range of it, and not the next one
        logger.warning("a result could not be kept", exc_info=True)
    result = _with_size(tag, kept, caller, MISS)
    if result is None:
        raise Unavailable("the result was taken back while it was read")
    return result


def _keeping(caller: Caller) -> Caller:
    """Return a caller whose larger results go to the lake in parts, where the storage has links to them."""
    settings = caller.settings
    if settings.max_result_bytes is None or not has_links(caller.lake.store):
        return caller
    most = min(settings.result_limit_bytes, settings.kept_bytes_max)
    return replace(caller, settings=replace(settings, result_limit_bytes=most))


def _note(caller: Caller, name: str, read: Read) -> None:
    try:
        keep_read(caller.lake.store, name, read)
    except AlluviaError:
        logger.warning("the beginning of a read could not be kept", exc_info=True)


def _sent(result: _Result, header: str, asked: QueryRequest, wish: AnswerForm, caller: Caller) -> Response:
    told = _headers(result, caller)
    wanted = None if caller.request.method == "HEAD" or not header else byte_range(header, result.size)
    if wanted is not None:
        start, end = wanted
        told["Content-Range"] = content_range(start, end, result.size)
        if start >= end:
            return failure(416, f"the result has {result.size} bytes: ask for a range within them", **told)
        if end - start <= result_limit(asked, caller):
            return part(_bytes(result, start, end, caller), wish, told)
        del told["Content-Range"]
    elif result.object is None:
        return success(result.kept.body, wish, told)
    elif caller.request.method == "HEAD":
        return success(b"", wish, told | {"Content-Length": str(result.size)})
    assert result.object is not None  # noqa: S101 - what is not in an answer is an object
    return linked(caller.lake, result.object.key, {"Vary": VARY, **told, "ETag": f'"{result.tag}"'})


def _headers(result: _Result, caller: Caller) -> dict[str, str]:
    told: Mapping[str, str] = result.kept.told
    if result.cache == HIT:
        told = {**told, **{name: "0" for name in (FILES_READ, BYTES_READ) if name in told}}
    kept = caller.settings.cache_control if result.lasts else NO_STORE
    tag = {"ETag": f'"{result.tag}"', "Accept-Ranges": "bytes"}
    return {**told, **tag, "Cache-Control": kept, CACHE: result.cache}


def _bytes(result: _Result, start: int, end: int, caller: Caller) -> bytes:
    if result.object is None:
        return result.kept.body[start:end]
    found = caller.lake.store.get_same(result.object.key, result.object.etag, start, end)
    if found is None:
        raise Unavailable("the result was taken back while it was read")
    return found
