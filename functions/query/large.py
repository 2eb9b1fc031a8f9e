"""Results that are too large for an answer: they go to the lake, and the answer is a link to them (303 See Other).

The link needs no token and is valid for an hour: a presigned URL of S3, or a signed path of `alluvia serve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from alluvia.engine.duck.failures import ResultTooLarge
from alluvia.errors import Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.results import (
    LARGE,
    LINK_SECONDS,
    LinkedBytes,
    erased_since,
    kept_bytes,
    new_large_key,
    take_back,
)
from alluvia.query.engine import Rendered
from alluvia.query.formats import Format
from alluvia.serverless.http import Response, TooManyRequests, answer
from alluvia.serverless.query_settings import CALLER_RESULT_BYTES
from alluvia.serverless.routes.query_fields import RESULT_BYTES

from .codings import encoded_parts

if TYPE_CHECKING:
    from alluvia import Lake
    from alluvia.store import Store

RESULTS_PATH = "/v1/results/"


@dataclass
class LargeResult:
    """A result on its way to the lake. Once it is there, it has a key; `result_bytes` are those before coding.

    `caller` is whose it is, "" for those that are not told apart. A caller may have links to `caller_bytes`, as stored.
    """

    lake: Lake
    form: Format
    coding: str | None
    caller: str = ""
    caller_bytes: int | None = None
    key: str | None = None
    result_bytes: int = 0

    def keep(self, parts: Iterator[bytes]) -> None:
        """Write a result. Raises `ResultTooLarge` where no link to it could be given.

        Raises `TooManyRequests` where it would be more than the caller may keep. Besides the result's own requests, two
        LISTs where that is limited: the second finds what others have written for the caller meanwhile.
        """
        key = new_large_key(self.lake.clock, self.form.suffix, self.coding, self.caller)
        if link_to(self.lake.store, key) is None:
            raise ResultTooLarge("the result is too large for an answer, and this lake's storage has no links: add a "
                                 "LIMIT, select fewer columns, aggregate, or ask `alluvia serve`")  # fmt: skip
        headers = {"Content-Type": self.form.content_type}
        if self.coding is not None:
            headers["Content-Encoding"] = self.coding
        coded = encoded_parts(self._counted(parts), self.coding)
        if self.caller and self.caller_bytes is not None:
            coded = self._within(self.caller_bytes, self._kept(), coded)
        self.lake.store.put_parts(key, coded, headers)
        if self.caller and self.caller_bytes is not None:
            kept = self._kept()
            if kept.total > self.caller_bytes:
                take_back(self.lake.store, key)
                raise _no_room(self.caller_bytes, kept)
        self.key = key

    def _kept(self) -> LinkedBytes:
        return kept_bytes(self.lake.store, self.lake.clock, self.caller)

    def _within(self, most: int, kept: LinkedBytes, parts: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what there is room for. Raises where a part is beyond it."""
        total = kept.total
        for part in parts:
            total += len(part)
            if total > most and kept.total:
                raise _no_room(most, kept)
            if total > most:
                raise ResultTooLarge(f"the result is larger than {most} bytes, all that one caller may have links to "
                                     f"({CALLER_RESULT_BYTES}): add a LIMIT, or select fewer columns")  # fmt: skip
            yield part

    def _counted(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        self.result_bytes = 0
        for part in parts:
            self.result_bytes += len(part)
            yield part

    def check(self, rendered: Rendered) -> None:
        """Take the result back, and raise `Unavailable`, where rows that it may have were erased meanwhile."""
        if self.key is not None and erased_since(self.lake.catalog, rendered.read):
            take_back(self.lake.store, self.key)
            raise Unavailable("rows of a table were erased while the query ran")


def _no_room(most: int, kept: LinkedBytes) -> TooManyRequests:
    return TooManyRequests(
        f"you have links to {kept.total} bytes of large results, and with this one more than {most}, the limit for one "
        f"caller ({CALLER_RESULT_BYTES}): the first link expires in {kept.seconds} seconds, send the query again then, "
        "or add a LIMIT",
        kept.seconds,
    )


def link_to(store: Store, key: str) -> str | None:
    """Return a link to a large result; None where there are none."""
    url = store.signed_url("GET", key, LINK_SECONDS)
    if url is not None:
        return url
    from alluvia.serverless.signed_paths import current_signer  # which functions do not need

    signer = current_signer()
    return None if signer is None else signer.sign("GET", RESULTS_PATH + key.removeprefix(LARGE), LINK_SECONDS)


def has_links(store: Store) -> bool:
    """Whether there are links to large results of a store."""
    return link_to(store, f"{LARGE}any") is not None


def linked(lake: Lake, key: str, headers: dict[str, str]) -> Response:
    """Return the answer that leads to a large result: it must not be kept by caches, since its link expires."""
    url = link_to(lake.store, key)
    if url is None:
        raise ResultTooLarge("the result is too large for an answer, and this lake's storage has no links")
    expires = datetime.fromtimestamp(lake.clock.now_ms() // 1000 + LINK_SECONDS, UTC)
    body = {"result": url, "bytes": int(headers[RESULT_BYTES]), "expires": expires.isoformat()}
    return answer(303, body, **{**headers, "Location": url, "Cache-Control": "no-store"})
