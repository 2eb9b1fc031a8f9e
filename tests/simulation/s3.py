"""A simulated S3: one bucket, and the client of it that the real S3 store of the library runs on.

It stands where boto3's client stands, so that the store's own treatment of 409, 412, 5xx, time-outs and lost answers
runs in every simulation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

from botocore.exceptions import ClientError, ConnectionClosedError

from alluvia.clock import Clock
from alluvia.store import PutResult
from alluvia.store.s3 import S3Store
from tests.simulation.faults import Fault, FaultSource
from tests.simulation.scheduler import Scheduler, Violation

BUCKET = "lake"
RETRIES = 5
PAGE_KEYS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    """The calls of boto3's client that the store makes. `actor` is asked who sends the request."""

    def __init__(self, bucket: Bucket, actor: Callable[[], Actor | None], process: Process, attempts: int) -> None:
        self._bucket = bucket
        self._actor = actor
        self._process = process
        self._generation = process.generation
        self._attempts = attempts

    def put_object(self, **request: Any) -> dict[str, Any]:
        body = request["Body"]
        data = bytes(body) if isinstance(body, (bytes, bytearray, memoryview)) else body.read()
        absent = request.get("IfNoneMatch") == "*"
        actor = self._actor()
        intent = None if actor is None else actor.intent

        def effect() -> dict[str, Any]:
            if not self._bucket.put(request["Key"], data, absent=absent, intent=intent):
                raise _error("PreconditionFailed", 412)
            return {}

        return self._retried("PUT", request["Key"], effect, conditional=absent, write=True)

    def get_object(self, **request: Any) -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            found = self._bucket.objects.get(request["Key"])
            if found is None:
                raise _error("NoSuchKey", 404)
            data = found[0]
            if "Range" in request:
                data = _ranged(data, request["Range"])
            return {"Body": Body(data)}

        return self._retried("GET", request["Key"], effect)

    def head_object(self, **request: Any) -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            found = self._bucket.objects.get(request["Key"])
            if found is None:
                raise _error("404", 404)
            return {"ContentLength": len(found[0]), "LastModified": _moment(found[1])}

        return self._retried("HEAD", request["Key"], effect)

    def delete_objects(self, **request: Any) -> dict[str, Any]:
        keys = [entry["Key"] for entry in request["Delete"]["Objects"]]

        def effect() -> dict[str, Any]:
            self._bucket.delete(keys)
            return {}

        return self._retried("DELETE", f"{keys[0]} and {len(keys) - 1} more", effect, write=True)

    def get_paginator(self, _: str) -> Client:
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        prefix, after = request["Prefix"], request.get("StartAfter", "")
        if request.get("Delimiter"):
            yield self._retried("LIST", f"{prefix} /", lambda: {"CommonPrefixes": self._folders(prefix)})
            return
        while True:
            page = partial(self._page, prefix, after)
            keys = self._retried("LIST", f"{prefix} {after}", page)["Contents"]
            yield {"Contents": keys}
            if len(keys) < PAGE_KEYS:
                return
            after = keys[-1]["Key"]

    def _page(self, prefix: str, after: str) -> dict[str, Any]:
        found = []
        for key in self._bucket.below(prefix, after)[:PAGE_KEYS]:
            data, at_us = self._bucket.objects[key]
            found.append({"Key": key, "Size": len(data), "LastModified": _moment(at_us)})
        return {"Contents": found}

    def _folders(self, prefix: str) -> list[dict[str, str]]:
        rests = [key[len(prefix) :] for key in self._bucket.below(prefix, "")]
        names = sorted({rest.partition("/")[0] for rest in rests if "/" in rest})
        return [{"Prefix": f"{prefix}{name}/"} for name in names]

    def _retried(
        self,
        verb: str,
        key: str,
        effect: Callable[[], dict[str, Any]],
        *,
        conditional: bool = False,
        write: bool = False,
    ) -> dict[str, Any]:
        """Send a request, and again after 5xx and broken connections, as botocore does."""
        for attempt in range(1, self._attempts + 1):
            try:
                return self._send(verb, key, effect, conditional=conditional, write=write)
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if attempt == self._attempts or status < 500:
                    raise
            except ConnectionClosedError:
                if attempt == self._attempts:
                    raise
            self._bucket.scheduler.wait(20_000 * 2**attempt)
            self._check_alive()
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self, verb: str, key: str, effect: Callable[[], dict[str, Any]], *, conditional: bool, write: bool
    ) -> dict[str, Any]:
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
            raise ConnectionClosedError(endpoint_url="simulated")
        if kind == "500 after":
            raise _error("InternalError", 500)
        if kind == "412 for one's own":
            raise _error("PreconditionFailed", 412)
        return answer

    def _before(self, kind: str, length_us: int, actor: Actor, effect: Callable[[], dict[str, Any]]) -> None:
        """Fail before the effect, if that is what befalls the request."""
        if kind == "crash before":
            self._crash(actor)
        if kind == "delayed":
            self._bucket.scheduler.later(length_us, lambda: _quietly(effect))
        if kind in ("lost before", "delayed"):
            raise ConnectionClosedError(endpoint_url="simulated")
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
        self._prefix = ""
        self._clock = clock
        self._there = bucket
        self._client = Client(bucket, actor, process, RETRIES)  # type: ignore[assignment]
        self.__dict__["_once"] = Client(bucket, actor, process, 1)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Check the store's contract beside the call: an object that exists is there."""
        result = super().put_if_absent(key, data)
        if result is PutResult.EXISTS and key not in self._there.ever:
            raise Violation("EXISTS means that there is an object", key)
        return result


class Body:
    """An answer's body."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def iter_chunks(self, _: int) -> Iterator[bytes]:
        yield self._data


def _quietly(effect: Callable[[], dict[str, Any]]) -> None:
    """Let a request take effect whose sender no longer listens."""
    try:
        effect()
    except ClientError:
        return


def _ranged(data: bytes, header: str) -> bytes:
    start, _, end = header.removeprefix("bytes=").partition("-")
    if not start:
        return data[-int(end) :]
    if int(start) >= len(data):
        raise _error("InvalidRange", 416)
    return data[int(start) : int(end) + 1 if end else None]


def _moment(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us)


def _error(code: str, status: int) -> ClientError:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Simulated")  # type: ignore[arg-type]
