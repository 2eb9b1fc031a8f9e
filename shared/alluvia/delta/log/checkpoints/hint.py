"""`_last_checkpoint`, the hint at which checkpoint to begin. Pure. Source: Delta protocol, "Last Checkpoint File"."""

from __future__ import annotations

import orjson

from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """What `_last_checkpoint` says: a checkpoint's version, and how many data files it holds, if it says that."""

    version: int
    files: int | None = None


def parse_last_checkpoint(data: bytes) -> Hint | None:
    """Return what a `_last_checkpoint` says; None when it cannot be read, since it is only a hint."""
    try:
        body = orjson.loads(data)
        version, files = body.get("version"), body.get("numOfAddFiles")
    except (ValueError, AttributeError):
        return None
    if type(version) is not int or version < 0:
        return None
    return Hint(version, files if type(files) is int else None)


def last_checkpoint(version: int, rows: int, size_in_bytes: int, files: int) -> bytes:
    """Return the body of `_last_checkpoint`."""
    return orjson.dumps({"version": version, "size": rows, "sizeInBytes": size_in_bytes, "numOfAddFiles": files})
