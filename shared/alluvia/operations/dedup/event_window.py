"""Open the window of event ids, from the index of a checkpoint and the commits after it."""

from __future__ import annotations

from alluvia.commit.event_window.index import WINDOW_FOLDER, index_name, index_version, read_index
from alluvia.commit.event_window.window import DedupWindow, WindowRules
from alluvia.commit.handle import TableHandle
from alluvia.delta.lineage import below_gap, in_gap
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log
from alluvia.errors import ObjectNotFound


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
    found: list[CommitActions] = []
    window, whole = DedupWindow(rules), True
    at = below_gap(rules.gaps, version)
    while at >= 0:
        commit = log.read_commit(at)
        if commit is None:
            window, whole = _from_index(log, at, version, rules)
            break
        if commit.timestamp_ms < after_ms:
            break
        found.append(commit)
        at = below_gap(rules.gaps, at - 1)
    window.follow(reversed(found))
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
