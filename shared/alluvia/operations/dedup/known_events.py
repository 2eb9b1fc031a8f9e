"""Which events a table knows: by its window, and by the id files of commits that do not carry their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from alluvia.commit.event_window.id_files import CommitFiles, IdHeader, contents_in, split_print
from alluvia.commit.event_window.window import DedupWindow
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.lineage import Gaps
from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.store import ByteRange

GAP_BYTES_MAX = 64 << 10
"""Pages that are nearer to each other are read by one request."""


class _Place(NamedTuple):
    """Where an id is if a commit holds it: in these bytes of an object."""

    key: str
    start: int
    end: int
    fingerprint: bytes


def held_events(
    handle: TableHandle, window: DedupWindow, prints: Sequence[bytes], undone: Gaps, after: int = -1
) -> dict[bytes, set[bytes]]:
    """Return the contents under which a table knows each of some fingerprints, by its window.

    What versions in the ranges `undone` hold does not count, nor, of id files, those of versions up to `after`. No
    request, unless there are such files: then one GET for the header of a range that this process has not seen, and at
    most one for each page that the filters do not exclude. Raises `Corrupt` where an object is gone that must be there.
    """
    held = window.held(prints, undone)
    for commit in window.files(undone, after):
        for fingerprint, content in _found(handle, window, commit, prints):
            held.setdefault(fingerprint, set()).add(content)
    return held


def read_file(handle: TableHandle, commit: CommitFiles, number: int) -> bytes | None:
    """Return the object of one range of a commit's ids; None where these have been forgotten. Raises `Corrupt`."""
    try:
        return handle.store.get(handle.root + commit.files.name(number))
    except ObjectNotFound as error:
        _check_forgotten(handle, commit, error)
        return None


def _found(
    handle: TableHandle, window: DedupWindow, commit: CommitFiles, prints: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    try:
        _read_headers(handle, commit, prints)
        return list(_read_pages(handle, list(_places(handle.root, commit, prints))))
    except ObjectNotFound as error:
        _check_forgotten(handle, commit, error)
        window.drop(commit)
        return []


def _check_forgotten(handle: TableHandle, commit: CommitFiles, error: ObjectNotFound) -> None:
    """Raise `Corrupt` unless a commit is so old that vacuum may have taken its id files.

    Vacuum takes them long after the window has ended, and after a commit of its own, which is not in the log of a
    branch: so the clock counts, too. A window that was made longer since then does not bring them back.
    """
    now_ms = max(handle.log.refresh().timestamp_ms, handle.clock.now_ms())
    if now_ms - commit.timestamp_ms < FILE_AGE_MS_MAX:
        raise Corrupt(f"{handle.name}: the event ids of version {commit.version} are missing: {error}") from error


def _read_headers(handle: TableHandle, commit: CommitFiles, prints: Sequence[bytes]) -> None:
    files = commit.files
    touched = {files.page(split_print(each)[0])[0] for each in prints}
    missing = sorted(touched - commit.headers.keys())
    keys = [handle.root + files.name(number) for number in missing]
    data = handle.store.get_many(ByteRange(key, 0, files.header_bytes) for key in keys)
    for number, key, header in zip(missing, keys, data, strict=True):
        commit.headers[number] = IdHeader(files, header, key)


def _places(root: str, commit: CommitFiles, prints: Sequence[bytes]) -> Iterator[_Place]:
    for fingerprint in prints:
        head, tail = split_print(fingerprint)
        number, page = commit.files.page(head)
        header = commit.headers[number]
        if header.may_hold(page, head, tail):
            yield _Place(root + commit.files.name(number), *header.bounds(page), fingerprint)


def _read_pages(handle: TableHandle, places: list[_Place]) -> Iterator[tuple[bytes, bytes]]:
    """Read pages at once, near ones together, and yield what was found in them: fingerprints and contents."""
    places.sort()
    cuts = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(places)) if _are_apart(one, other)), len(places)]
    groups = [places[start:end] for start, end in pairwise(cuts) if start < end]
    data = handle.store.get_many(ByteRange(group[0].key, group[0].start, group[-1].end) for group in groups)
    for group, read in zip(groups, data, strict=True):
        first = group[0].start
        for place in group:
            for content in contents_in(read[place.start - first : place.end - first], place.fingerprint):
                yield place.fingerprint, content


def _are_apart(one: _Place, other: _Place) -> bool:
    return one.key != other.key or other.start - one.end > GAP_BYTES_MAX
