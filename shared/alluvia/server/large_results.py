"""Large results over the local server: what signed paths below /v1/results/ lead to, whole or in ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from alluvia.errors import AlluviaError, Forbidden, ObjectNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.results import LARGE
from alluvia.query.formats import format_named
from alluvia.serverless.byte_ranges import byte_range, content_range
from alluvia.serverless.http import Response, failure
from alluvia.serverless.signed_paths import PathSigner
from alluvia.store import ObjectInfo, Store

PATH = "/v1/results/"
BLOCK_BYTES = 1 << 20
_NAME = re.compile(r"(?:[0-9a-f]{32}/)?[0-9a-f-]{36}\.([a-z]+)(?:\.(gzip|zstd))?")

FileWrapper = Callable[[Any, int], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Download:
    """An answer with bytes of an object."""

    status: int
    headers: dict[str, str]
    body: Iterable[bytes]
    size: int


def download(
    store: Store, signer: PathSigner, event: Mapping[str, Any], wrap: FileWrapper | None
) -> Download | Response:
    """Answer a GET or HEAD of a signed path, for an event as API Gateway has it.

    `wrap` is what the server has for files, if anything (`wsgi.file_wrapper`).
    """
    method, path = event["requestContext"]["http"]["method"], event["rawPath"]
    if method not in ("GET", "HEAD"):
        return failure(405, f"{path} takes GET, HEAD, not {method}", Allow="GET, HEAD")
    try:
        signer.check(method, path, event["rawQueryString"])
        return _found(store, path.removeprefix(PATH), event["headers"], wrap)
    except ObjectNotFound:
        return failure(404, "this result is gone, by clean-up or an erasure: run its query again")
    except AlluviaError as error:
        return failure(403 if isinstance(error, Forbidden) else 503, str(error), **{"Cache-Control": "no-store"})


def _found(store: Store, name: str, headers: Mapping[str, str], wrap: FileWrapper | None) -> Download:
    match = _NAME.fullmatch(name)
    info = None if match is None else store.head(LARGE + name)
    if match is None or info is None or not info.size:
        raise ObjectNotFound(name)
    told = {
        "Content-Type": format_named(match[1]).content_type,
        "Cache-Control": "private, no-store",
        "Accept-Ranges": "bytes",
        "ETag": f'"{info.etag.strip(chr(34))}"',
        **({} if match[2] is None else {"Content-Encoding": match[2]}),
    }
    asked = headers.get("range", "") if headers.get("if-range", told["ETag"]) == told["ETag"] else ""
    wanted = byte_range(asked, info.size)
    if wanted is None:
        return Download(200, told, _body(store, info, 0, info.size, wrap), info.size)
    start, end = wanted
    told["Content-Range"] = content_range(start, end, info.size)
    if start >= end:
        return Download(416, told, [], 0)
    return Download(206, told, _body(store, info, start, end, wrap), end - start)


def _body(store: Store, info: ObjectInfo, start: int, end: int, wrap: FileWrapper | None) -> Iterable[bytes]:
    path = store.local_path(info.key)
    if path is None or wrap is None:
        return _blocks(store, info, start, end)
    file = path.open("rb")
    file.seek(start)
    return wrap(file, BLOCK_BYTES)  # which sends as much as Content-Length says


def _blocks(store: Store, info: ObjectInfo, start: int, end: int) -> Iterator[bytes]:
    """Yield bytes of an object. Raises `Unavailable`, which cuts the answer off, where it is replaced meanwhile."""
    for at in range(start, end, BLOCK_BYTES):
        block = store.get_same(info.key, info.etag, at, min(at + BLOCK_BYTES, end))
        if block is None:
            raise Unavailable("the result was taken back while it was sent")
        yield block
