"""Uploads that come in parts: a file is cut anywhere, its parts are put into the lake, and become one file again.

`_alluvia/uploads/<table>/<id>/` has `upload.json`, what was asked for; `part-00001` and so on; and `state.json`, which
says who works on them until when, and the outcome. The table's log alone decides whether a file is stored.

`_alluvia/uploads/_callers/<hash of a caller>/<table>/<id>/<bytes>` says that an upload is the caller's, and how many
bytes it may get (no table can be named `_callers`). An empty object no longer reserves any. An upload that ends does
not give its room back: the next upload that needs the room notices, and one that has expired no longer counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from alluvia.clock import Clock
from alluvia.errors import Invalid, ObjectNotFound
from alluvia.files.limits import Misfit
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.upload_parts import UPLOAD_MS_MAX, UPLOADS
from alluvia.scratch import scratch_root
from alluvia.store import ObjectInfo, PutResult, Store
from alluvia.table_names import check_name

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

    One LIST. Where the allowance seems used up, a GET or two for each upload, and a PUT for each that has ended.
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


PARTS_MAX = 1000
LEASE_MS = 16 * 60_000
"""Longer than a function may run: who has not ended by then has died."""
_CHUNK_BYTES = 1 << 20
_PART = "part-"


class NoUpload(Invalid):
    """There is no such upload, or it has expired."""


@dataclass(frozen=True, slots=True)
class PartedUpload:
    """A file that comes in parts: their number, the file's bytes if they were said, and what was asked for.

    `origin` is the id of the branch that it is for; empty for the lake itself.
    """

    id: str
    table: str
    parts: int
    created_ms: int
    bytes: int | None = None
    asked: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""

    @property
    def folder(self) -> str:
        """Return the prefix of its objects."""
        return f"{UPLOADS}{self.table}/{self.id}/"

    @property
    def expires_ms(self) -> int:
        """Return until when it takes parts."""
        return self.created_ms + UPLOAD_MS_MAX

    def part_key(self, part: int) -> str:
        """Return where a part belongs; they count from 1."""
        return f"{self.folder}{_PART}{part:05}"


def begin(
    store: Store, clock: Clock, table: str, parts: int, size: int | None, asked: Mapping[str, str], origin: str = ""
) -> PartedUpload:
    """Note an upload, and return it. One PUT. Its id cannot be guessed."""
    check_name(table)
    upload = PartedUpload(clock.new_id(), table, parts, clock.now_ms(), size, dict(asked), origin)
    store.put(f"{upload.folder}upload.json", orjson.dumps(asdict(upload)))
    return upload


def find(store: Store, clock: Clock, table: str, upload_id: str) -> PartedUpload:
    """Return an upload. One GET. Raises `NoUpload`."""
    check_name(table)
    if not upload_id.replace("-", "").isalnum() or not upload_id.isascii():
        raise NoUpload("there is no such upload")
    try:
        upload = PartedUpload(**orjson.loads(store.get(f"{UPLOADS}{table}/{upload_id}/upload.json")))
    except ObjectNotFound:
        raise NoUpload("there is no such upload, or it has expired: begin a new one") from None
    if clock.now_ms() > upload.expires_ms:
        raise NoUpload("this upload has expired: begin a new one")
    return upload


def check_there(store: Store, upload: PartedUpload) -> None:
    """Raise `NoUpload` where an erasure of the table's rows has deleted an upload, which may have them. One HEAD."""
    if store.head(f"{upload.folder}upload.json") is None:
        raise NoUpload("the upload has expired, or rows of the table were erased: begin a new one")


def parts_there(store: Store, upload: PartedUpload) -> dict[int, ObjectInfo]:
    """Return the parts that have come, by their numbers. One LIST."""
    prefix = upload.folder + _PART
    return {int(info.key.removeprefix(prefix)): info for info in store.list(prefix)}


def complete_parts(store: Store, upload: PartedUpload) -> Sequence[ObjectInfo]:
    """Return all parts in order. Raises `Misfit` where one is missing, or they are not as long as was said."""
    there = parts_there(store, upload)
    missing = [part for part in range(1, upload.parts + 1) if part not in there]
    if missing:
        some = f"parts {missing[0]} and {len(missing) - 1} others are" if len(missing) > 1 else f"part {missing[0]} is"
        raise Misfit(f"{some} missing: send what is missing, then complete the upload again")
    size = sum(info.size for info in there.values())
    if upload.bytes is not None and size != upload.bytes:
        raise Misfit(f"the parts have {size} bytes together, not {upload.bytes}: send those again that are cut short")
    return [there[part] for part in sorted(there)]


@contextmanager
def gathered(store: Store, parts: Sequence[ObjectInfo]) -> Iterator[tuple[Path, str]]:
    """Yield a temporary file of all parts, and its SHA-256 in hex. One GET a part; a few are fetched ahead."""
    digest = sha256()
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        path = Path(folder, "upload")
        with path.open("wb") as file:
            for copy in store.prefetch([(info.key, info.size) for info in parts]):
                if copy is None:
                    raise NoUpload("a part is gone: the upload has expired, or rows of the table were erased")
                with copy.open("rb") as source:
                    while chunk := source.read(_CHUNK_BYTES):
                        digest.update(chunk)
                        file.write(chunk)
        yield path, digest.hexdigest()


def state_of(store: Store, upload: PartedUpload) -> Mapping[str, Any]:
    """Return what is known of the work on an upload: `state` is open, running, done or failed. One GET."""
    return find_state(store, upload.folder)


def find_state(store: Store, folder: str) -> Mapping[str, Any]:
    """Return what is known of the work on the upload in a folder, as `state_of`. One GET."""
    try:
        state: dict[str, Any] = orjson.loads(store.get(f"{folder}state.json"))
    except ObjectNotFound:
        return {"state": "open"}
    return state or {"state": "open"}


def take_lease(store: Store, clock: Clock, upload: PartedUpload) -> Mapping[str, Any] | None:
    """Begin to work on an upload. Returns the state where it is done, or another works on it.

    A lease saves work: two who store the same file store it once.
    """
    key, until_ms = f"{upload.folder}state.json", clock.now_ms() + LEASE_MS
    lease = orjson.dumps({"state": "running", "until_ms": until_ms})
    if store.put_if_absent(key, lease) is PutResult.CREATED:
        return None
    try:
        data, tag = store.get_tagged(key)
    except ObjectNotFound:
        raise NoUpload("there is no such upload any more: begin a new one") from None
    state: dict[str, Any] = orjson.loads(data) or {"state": "failed"}
    if state["state"] == "done" or (state["state"] == "running" and clock.now_ms() < state["until_ms"]):
        return state
    return None if store.put_if_same(key, lease, tag) else {"state": "running", "until_ms": until_ms}


def end_lease(store: Store, upload: PartedUpload, status: int, answer: Mapping[str, Any]) -> None:
    """Note the outcome of the work on an upload. A PUT and a HEAD."""
    state = {"state": "done" if status < 300 else "failed", "status": status, "answer": dict(answer)}
    path = f"{upload.folder}state.json"
    store.put(path, orjson.dumps(state))
    if store.head(f"{upload.folder}upload.json") is None:  # an erasure deleted it, and the answer may show its values
        store.put(path, b"{}")
