"""What one caller has begun to upload in parts and not finished: so many uploads, of so many bytes, and no more.

`_alluvia/uploads/_callers/<hash of a caller>/<table>/<id>/<bytes>` says that an upload is the caller's, and how many
bytes it may get. No table has such a name. An empty object holds nothing any more. Uploads give no room
back themselves: one that is done or gone is noticed when its room is needed, and one that has expired no longer counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from alluvia.clock import Clock
from alluvia.files.uploads.parts import PartedUpload, find_state
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.upload_parts import UPLOAD_MS_MAX, UPLOADS
from alluvia.store import ObjectInfo, Store

CALLERS = f"{UPLOADS}_callers/"


@dataclass(frozen=True, slots=True)
class UploadAllowance:
    """What one caller may have begun and not finished: uploads, and their bytes together."""

    uploads: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HeldUploads:
    """What a caller has begun and not finished, and in how many seconds the first of it expires."""

    uploads: int
    bytes: int
    seconds: int


def lacking(
    store: Store, clock: Clock, caller: str, share: UploadAllowance, more: UploadAllowance
) -> HeldUploads | None:
    """Return what leaves no room in a caller's share for more; None where there is room.

    One LIST. Where there seems to be no room, a GET or two for each upload, and a PUT for each that has ended.
    """
    held = _held(store, clock, caller)
    if _fits(held, share, more):
        return None
    ended = [info for info in held if _has_ended(store, info)]
    for info in ended:
        store.put(info.key, b"")
    left = [info for info in held if info not in ended]
    if _fits(left, share, more):
        return None
    first_ms = min((info.modified_ms for info in left), default=clock.now_ms())
    return HeldUploads(
        len(left), sum(map(_bytes_of, left)), max(1, (first_ms + UPLOAD_MS_MAX - clock.now_ms()) // 1000)
    )


def note(store: Store, caller: str, upload: PartedUpload, size: int) -> str:
    """Note that an upload is a caller's, and return the key of the note. One PUT."""
    key = f"{_folder(caller)}{upload.table}/{upload.id}/{size}"
    store.put(key, b"1")
    return key


def forget(store: Store, key: str) -> None:
    """Take a note back. One PUT."""
    store.put(key, b"")


def _folder(caller: str) -> str:
    return f"{CALLERS}{sha256(caller.encode()).hexdigest()[:32]}/"


def _held(store: Store, clock: Clock, caller: str) -> list[ObjectInfo]:
    oldest_ms = clock.now_ms() - UPLOAD_MS_MAX
    return [info for info in store.list(_folder(caller)) if info.size and info.modified_ms >= oldest_ms]


def _fits(held: Sequence[ObjectInfo], share: UploadAllowance, more: UploadAllowance) -> bool:
    size = sum(map(_bytes_of, held)) + more.bytes
    return len(held) + more.uploads <= share.uploads and size <= share.bytes


def _bytes_of(info: ObjectInfo) -> int:
    return int(info.key.rpartition("/")[2])


def _has_ended(store: Store, info: ObjectInfo) -> bool:
    folder = UPLOADS + "/".join(info.key.split("/")[-3:-1]) + "/"
    return find_state(store, folder)["state"] == "done" or store.head(f"{folder}upload.json") is None
