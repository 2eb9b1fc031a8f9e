"""Which events a table knows: its window of event ids, and a search in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from alluvia.commit.event_window.id_files import CommitFiles, IdHeader, contents_in, split_print
from alluvia.commit.event_window.index import WINDOW_FOLDER, index_name, index_version, read_index
from alluvia.commit.event_window.window import DedupWindow, WindowRules
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.lineage import Gaps, below_gap, in_gap
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log
from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.store import ByteRange


def follow_window(handle: TableHandle) -> DedupWindow:
    """Bring a handle's window up to the version that it knows; the commits that it followed hold all that is new."""
    state = handle.log.state or handle.at_hand().state
    window, rules = handle.window, WindowRules.of(state.metadata.configuration)
    commits = None
    if window is not None and window.rules.gaps == rules.gaps:
        commits = handle.log.since(window.version, event_ids=True)
    if window is None or commits is None:
        before, window = window, open_window(handle.log)
        window.version = max(window.version, state.version)
        if before is not None:
            window.take_headers(before)
    else:
        window.obey(rules)
        window.follow(commits)
    handle.window = window
    handle.log.release_event_ids(window.version)
    return window


def open_window(log: Log) -> DedupWindow:
    """Build the window at the version that a log knows: the checkpoint's index in one GET, and the commits after it.

    If there is no index, for example for another writer's checkpoint, the window's commits are read one by one.
    A checkpoint that was written when another table had the name has the index of that one. Clean-up may take the index
    of a log that was opened a moment before, and commits of the window too: then the log is opened again, on the
    checkpoint that made them needless. So it is where commits since the checkpoint are no longer in memory.
    """
    if log.state is None or log.since(_start(log), event_ids=True) is None:
        log.open()
    while True:
        window, whole = _window_of(log)
        start = log.checkpoint_version
        if whole:
            return window
        log.open()
        if log.checkpoint_version == start:
            return window


def _start(log: Log) -> int:
    """Return the version of the checkpoint that a log is based on; -1 for none."""
    return -1 if log.checkpoint_version is None else log.checkpoint_version


def _window_of(log: Log) -> tuple[DedupWindow, bool]:
    """Return the window of a log's current state, and whether everything that it is made from existed."""
    state, start = log.state or log.open(), _start(log)
    rules = WindowRules.of(state.metadata.configuration)
    after_ms = state.timestamp_ms - rules.window_ms
    whole = True
    if start < 0:
        window = DedupWindow(rules)
    elif in_gap(rules.gaps, start):
        window, whole = _from_commits(log, start, after_ms, rules)
    else:
        name = index_name(start)
        try:
            window = read_index(log.store.get(log.root + name), name, rules, start)
        except ObjectNotFound:
            window, whole = _from_commits(log, start, after_ms, rules)
    window.follow(log.since(start, event_ids=True) or ())
    return window, whole


def _from_commits(log: Log, version: int, after_ms: int, rules: WindowRules) -> tuple[DedupWindow, bool]:
    """Return the window that the commits up to a version make, and whether all that it needs was there.

    Where clean-up has taken a commit, an index stands for it and those before it: that of a checkpoint which is not the
    newest any more, or which was written before another table had the name.
    """
    newest_first: list[CommitActions] = []
    window, whole = DedupWindow(rules), True
    at = below_gap(rules.gaps, version)
    while at >= 0:
        commit = log.read_commit(at)
        if commit is None:
            window, whole = _from_index(log, at, version, rules)
            break
        if commit.timestamp_ms < after_ms:
            break
        newest_first.append(commit)
        at = below_gap(rules.gaps, at - 1)
    window.follow(reversed(newest_first))
    return window, whole


def _from_index(log: Log, missing: int, version: int, rules: WindowRules) -> tuple[DedupWindow, bool]:
    """Return the newest index of the table's own up to a version, and whether it holds the missing commit's ids."""
    keys = (info.key.removeprefix(log.root) for info in log.store.list(log.root + WINDOW_FOLDER))
    versions = [at for key in keys if (at := index_version(key)) is not None]
    own = [at for at in versions if at <= version and not in_gap(rules.gaps, at)]
    newest = max(own, default=-1)
    try:
        data = log.store.get(log.root + index_name(newest)) if own else None
    except ObjectNotFound:  # clean-up was faster
        data = None
    if data is None:
        return DedupWindow(rules), False
    return read_index(data, index_name(newest), rules, newest), newest >= missing


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
