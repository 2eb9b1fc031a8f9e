"""A simulated S3: one bucket, and the client of it that the real S3 store of the library runs on.

It stands where obstore's client stands, so that the store's own treatment of 409, 412, 5xx, time-outs and lost answers
runs in every simulation.
"""

from __future__ import annotations

import builtins
import mmap
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from alluvia.clock import Clock
from alluvia.store import Address, PutResult
from alluvia.store.s3.bucket import S3Store
from alluvia.store.s3.s3_client import READ_SECONDS
from tests.simulation.faults import Fault, FaultSource
from tests.simulation.scheduler import Scheduler, Violation

BUCKET = "lake"
PAGE_KEYS = 50
Json = dict[str, Any]
T = TypeVar("T")
_BROKEN = "Generic S3 error: HTTP error: error sending request\n\nDebug source:\nkind: Request,"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LISTED = pa.schema(
    {"path": pa.string(), "last_modified": pa.timestamp("us", "UTC"), "size": pa.uint64(), "e_tag": pa.string()}
)


class Crash(BaseException):
    """The process that runs this code is gone. No library code may catch it."""


class Observer(Protocol):
    """Whoever looks on at what takes effect, in the order in which it does."""

    def put(self, key: str, data: bytes, intent: object) -> None: ...

    def deleted(self, keys: list[str]) -> None: ...


@dataclass
class Bucket:
    """Objects, and who looks on. `objects` maps a key to its bytes and when it was written, in us of true time."""

    scheduler: Scheduler
    observer: Observer
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    ever: set[str] = field(default_factory=set)
    requests: int = 0
    tick_us: int = 1
    """The store tells times in multiples of this."""
    fired: list[Fault] = field(default_factory=list)

    def put(self, key: str, data: bytes, *, absent: bool, intent: object) -> bool:
        """Write; False where the key is taken and must not be."""
        if absent and key in self.objects:
            return False
        if key not in self.objects:
            insort(self.keys, key)
        self.ever.add(key)
        digest = blake2b(data, digest_size=6).hexdigest()
        self.scheduler.note(f"* wrote {key} {len(data)} {digest}")
        self.observer.put(key, data, intent)
        self.objects[key] = (data, self.scheduler.now_us)
        return True

    def delete(self, keys: list[str]) -> None:
        """Delete what is there."""
        gone = [key for key in keys if key in self.objects]
        for key in gone:
            del self.objects[key]
            del self.keys[bisect_left(self.keys, key)]
        self.scheduler.note(f"* deleted {' '.join(gone)}")
        self.observer.deleted(gone)

    def below(self, prefix: str, after: str) -> list[str]:
        """Return the keys with a prefix, greater than another."""
        found = []
        for at in range(bisect_left(self.keys, prefix), len(self.keys)):
            key = self.keys[at]
            if not key.startswith(prefix):
                break
            if key > after:
                found.append(key)
        return found


class Process:
    """One running program: what dies in it dies together."""

    def __init__(self) -> None:
        self.generation = 0


class Actor(Protocol):
    """Whoever sends requests: its name, its faults, its process, and what it is about to do."""

    name: str
    faults: FaultSource
    process: Process
    intent: object


class Client:
    """The calls of obstore's client that the store makes. `actor` is asked who sends the request."""

    def __init__(self, bucket: Bucket, actor: Callable[[], Actor | None], process: Process) -> None:
        self._bucket = bucket
        self._actor = actor
        self._process = process
        self._generation = process.generation

    def put(
        self, key: str, data: bytes | mmap.mmap, *, mode: str | dict[str, str] = "overwrite", use_multipart: bool
    ) -> None:
        assert not use_multipart
        body, absent = bytes(data), mode == "create"
        actor = self._actor()
        intent = None if actor is None else actor.intent

        def effect() -> None:
            if isinstance(mode, dict) and _tag(self._object(key)[0]) != mode["e_tag"]:
                raise _error("PreconditionFailed", 412)
            if not self._bucket.put(key, body, absent=absent, intent=intent):
                raise _error("PreconditionFailed", 412)

        self._send("PUT", key, effect, conditional=absent, write=True)

    def get(self, key: str, *, options: dict[str, Any] | None = None) -> Found:
        def effect() -> Found:
            data = self._object(key)[0]
            return Found(_ranged(data, options["range"]) if options else data)

        return self._send("GET", key, effect)

    def head(self, key: str) -> Json:
        return self._send("HEAD", key, lambda: self._listed(key))

    def _object(self, key: str) -> tuple[bytes, int]:
        found = self._bucket.objects.get(key)
        if found is None:
            raise _error("NoSuchKey", 404)
        return found

    def copy(self, source: str, key: str, *, overwrite: bool = True) -> None:
        def effect() -> None:
            if not self._bucket.put(key, self._object(source)[0], absent=not overwrite, intent=None):
                raise _error("PreconditionFailed", 412)

        self._send("PUT", key, effect, conditional=not overwrite, write=True)

    def delete(self, keys: list[str]) -> None:
        self._send("DELETE", f"{keys[0]} and {len(keys) - 1} more", lambda: self._bucket.delete(keys), write=True)

    def list(
        self, folder: str | None, *, offset: str | None, chunk_size: int, return_arrow: bool = False
    ) -> Iterator[builtins.list[Json] | pa.RecordBatch]:
        assert chunk_size >= PAGE_KEYS
        prefix, after = "" if folder is None else f"{folder}/", offset or ""
        while True:
            page = self._send("LIST", f"{prefix} {after}", partial(self._page, prefix, after))
            yield pa.RecordBatch.from_pylist(page, _LISTED) if return_arrow else page
            if len(page) < PAGE_KEYS:
                return
            after = page[-1]["path"]

    def _page(self, prefix: str, after: str) -> builtins.list[Json]:
        keys = self._bucket.below(prefix, after)[:PAGE_KEYS]
        return [self._listed(key) for key in keys]

    def _listed(self, key: str) -> Json:
        data, at_us = self._object(key)
        moment = _EPOCH + timedelta(microseconds=at_us - at_us % self._bucket.tick_us)
        return {"path": key, "size": len(data), "last_modified": moment, "e_tag": _tag(data)}

    def list_with_delimiter(self, prefix: str | None) -> Json:
        return self._send("LIST", f"{prefix or ''} /", partial(self._level, prefix or ""))

    def _level(self, prefix: str) -> Json:
        rests = [key[len(prefix) :] for key in self._bucket.below(prefix, "")]
        folders = {rest.partition("/")[0] for rest in rests if "/" in rest}
        return {
            "common_prefixes": [prefix + name for name in folders],
            "objects": [self._listed(prefix + rest) for rest in rests if "/" not in rest],
        }

    def _send(
        self, verb: str, key: str, effect: Callable[[], T], *, conditional: bool = False, write: bool = False
    ) -> T:
        bucket, actor = self._bucket, self._actor()
        bucket.requests += 1
        scheduler = bucket.scheduler
        if actor is None:
            scheduler.wait(5_000)
            return effect()
        fault, latency_us = actor.faults.next(conditional=conditional, write=write)
        kind = "" if fault is None else fault.kind
        if fault is not None:
            bucket.fired.append(fault)
        length_us = 0 if fault is None else fault.length_us
        scheduler.note(f"{verb} {key}{' ! ' + kind if kind else ''}{f' {length_us} us' if length_us else ''}")
        scheduler.wait(latency_us + (length_us if kind == "pause before" else 0))
        self._check_alive()
        self._before(kind, length_us, actor, effect)
        answer = effect()
        scheduler.wait(latency_us // 2 + (length_us if kind == "pause after" else 0))
        self._check_alive()
        if kind == "crash after":
            self._crash(actor)
        if kind == "lost after":
            raise GenericError(_BROKEN)
        if kind == "500 after":
            raise _error("InternalError", 500)
        if kind == "412 for one's own":
            raise _error("PreconditionFailed", 412)
        return answer

    def _before(self, kind: str, length_us: int, actor: Actor, effect: Callable[[], object]) -> None:
        """Fail before the effect, if that is what befalls the request."""
        if kind == "crash before":
            self._crash(actor)
        if kind == "delayed":
            self._bucket.scheduler.later(length_us, lambda: _quietly(effect))
        if kind in ("lost before", "delayed"):
            raise GenericError(_BROKEN)
        if kind == "500 before":
            raise _error("InternalError", 500)
        if kind == "503":
            raise _error("SlowDown", 503)
        if kind == "409":
            raise _error("ConditionalRequestConflict", 409)

    def _crash(self, actor: Actor) -> None:
        actor.process.generation += 1
        raise Crash

    def _check_alive(self) -> None:
        if self._process.generation != self._generation:
            raise Crash


class SimulatedStore(S3Store):
    """The library's S3 store on a simulated client."""

    def __init__(
        self, bucket: Bucket, clock: Clock, actor: Callable[[], Actor | None], process: Process | None = None
    ) -> None:
        process = process or Process()
        self.uri = f"s3://{BUCKET}"
        self.bucket = BUCKET
        self.endpoint_url = ""
        self._prefix = ""
        self._clock, self._read_seconds = clock, READ_SECONDS
        self._there = bucket
        self._simulated = Client(bucket, actor, process)

    def _client_of(self, seconds: int, retries: int = 0) -> Any:
        return self._simulated

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Check the store's contract beside the call: an object that exists is there."""
        result = super().put_if_absent(key, data)
        if result is PutResult.EXISTS and key not in self._there.ever:
            raise Violation("EXISTS means that there is an object", key)
        return result

    def url(self, key: str) -> str | None:
        """Have DuckDB get copies of files, since it cannot ask a server for them."""
        return None

    def address(self, key: str) -> Address | None:
        return None


class Found:
    """An answer to a GET."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.meta = {"e_tag": _tag(data)}

    def bytes(self) -> bytes:
        return self._data

    def stream(self, _: int) -> Iterator[builtins.bytes]:
        yield self._data


def _quietly(effect: Callable[[], object]) -> None:
    """Let a request take effect whose sender no longer listens."""
    try:
        effect()
    except (BaseError, FileNotFoundError):
        return


def _tag(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _ranged(data: bytes, wanted: Any) -> bytes:
    if isinstance(wanted, dict) and "suffix" in wanted:
        return data[-wanted["suffix"] :]
    start, end = (wanted["offset"], None) if isinstance(wanted, dict) else wanted
    if start >= len(data):
        raise _error("InvalidRange", 416)
    return data[start:end]


def _error(code: str, status: int) -> Exception:
    text = f"Server returned non-2xx status code: {status} X: <Error><Code>{code}</Code></Error>"
    if status == 404:
        return FileNotFoundError(text)
    return AlreadyExistsError(text) if status in (409, 412) else GenericError(text)
