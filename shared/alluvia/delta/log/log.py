"""A table's log: open it, follow it, and write commits to it. What is read of it is in `reading.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from threading import RLock

from alluvia.clock import Clock
from alluvia.delta.log.checkpoints.putting import put_checkpoint, put_v2_checkpoint
from alluvia.delta.log.checkpoints.writer import Form
from alluvia.delta.log.commit import EVENT_TEXTS, CommitActions, timed_since
from alluvia.delta.log.committer import Backoff, put_once, unknown
from alluvia.delta.log.paths import commit_name
from alluvia.delta.log.reading import LISTINGS_MAX, LogReader
from alluvia.delta.log.replay import State, find_segment, oldest_version, replay, taken_ms
from alluvia.errors import Corrupt, ObjectNotFound, TransactionExpired, Unavailable, VersionExpired, VersionNotFound
from alluvia.store import Store

FOLLOW_AGE_MS_MAX = 60 * 60 * 1000
RECENT_COMMITS_MAX = 1000
RECENT_ID_CHARS_MAX = 16 << 20
"""How much text of event ids the commits in memory may hold that no window has taken."""
UNLISTED_COMMITS = 2
"""S3 charges as much for a LIST as for twelve GETs: a reader that follows closely sends none."""
TOLD_COMMITS_MAX = 100


class Log(LogReader):
    """The log of the table at `root` (empty, or ending in `/`) in a store.

    It keeps the newest state it has seen, and the newest commits, to be read again: all that it was
    opened with, until others follow, and then as many as take little memory.
    Safe for use from several threads; hold `lock` to keep the newest state between two calls.
    """

    def __init__(self, store: Store, root: str, clock: Clock) -> None:
        super().__init__(store, root)
        self.clock = clock
        self.lock = RLock()
        self.state: State | None = None
        self.checkpoint_version: int | None = None
        self._recent: deque[CommitActions] = deque()
        self._id_chars = 0
        self._released = -1
        self.backoff = Backoff()
        self.committed: Callable[[State, int], None] = lambda _state, _versions: None
        """Told of each commit of ours, and how many versions it took: what was claimed took one for its claim, too."""
        self._seen_ms = 0
        self._based_ms = 0
        self._told = -1

    def copy(self) -> Log:
        """Return another log of the same table that has seen what this one has; each goes on by itself."""
        other = Log(self.store, self.root, self.clock)
        with self.lock:
            other.state, other.checkpoint_version = self.state, self.checkpoint_version
            other._recent, other._id_chars, other._released = self._recent.copy(), self._id_chars, self._released
            other._seen_ms, other._based_ms = self._seen_ms, self._based_ms
        return other

    def take_checkpoint(self, other: Log) -> None:
        """Know the newest checkpoint that a copy knows, and go on from it if the copy's state is that checkpoint."""
        with self.lock:
            if (other.checkpoint_version or -1) <= (self.checkpoint_version or -1):
                return
            self.checkpoint_version = other.checkpoint_version
            if other.state is not None and other.state.version == other.checkpoint_version:
                later = self.since(other.state.version)
                if later is not None:
                    self.state, self._based_ms = replay(other.state, later), other._based_ms

    def open(self) -> State:
        """Read the newest version: `_last_checkpoint`, one listing, the checkpoint and the commits after it.

        Raises `TableNotFound`, `Corrupt`, `Unsupported`, `Unavailable`.
        """
        with self.lock:
            began_ms = self.clock.now_ms()
            segment, state, commits = self._opened()
            self._recent = deque(commits)
            self._id_chars = sum(map(_id_chars, commits))
            self._released = -1
            self.checkpoint_version = segment.checkpoint[0].version if segment.checkpoint else None
            self._based_ms = began_ms
            return self._keep(state, began_ms)

    def refresh(self, at_once: int = 1, *, most: int | None = None) -> State:
        """Return the newest version: follow the log from the current one, or open it if there is none or it is too old.

        Following costs one GET a new commit, and a request that finds no more; some more if it asks for several
        `at_once`. With `most` it ends after that many commits, though there may be more.
        A handle that has not looked for an hour opens afresh, since clean-up may have deleted the commits after its
        version.
        """
        with self.lock:
            if self.state is None or self.stale:
                return self.open()
            began_ms = self.clock.now_ms()
            commits = self.following(self.state.version, at_once, most)
            self._told = -1
            state = self.advance(commits, began_ms)
            return self.open() if self.stale else state

    def expect(self, version: int) -> None:
        """Have the next refresh read the commits up to a version at once, since a message says that it is there."""
        self._told = max(self._told, version)

    def following(self, version: int, at_once: int = 1, most: int | None = None) -> list[CommitActions]:
        """Read the commits after a version, some at once, up to the newest one or `most` of them.

        In a store elsewhere, a LIST finds all that follow the first few, in place of the GET that finds no more. All of
        them are then read at the same time. On a branch, a LIST would find all later commits of the lake, too.
        """
        commits: list[CommitActions] = []
        lists = self.store.parallel and not self.store.is_branch
        told = min(self._told, version + TOLD_COMMITS_MAX)
        while most is None or len(commits) < most:
            first, left = version + len(commits) + 1, None if most is None else most - len(commits)
            is_listed = lists and first - max(version, told) > UNLISTED_COMMITS
            versions = self.listed_from(first) if is_listed else range(first, max(first + at_once, told + 1))
            for commit in self.store.map(self.read_commit, versions[:left]):
                if commit is None:
                    return commits
                commits.append(commit)
            if is_listed:
                break
        return commits

    @property
    def age_ms(self) -> int:
        """Return how long ago this process has looked for the newest version."""
        return self.clock.now_ms() - self._seen_ms

    @property
    def base_is_old(self) -> bool:
        """Whether clean-up may have deleted the checkpoint of the current state, and its sidecars."""
        return self.clock.now_ms() - self._based_ms > FOLLOW_AGE_MS_MAX

    @property
    def stale(self) -> bool:
        """Whether the current state is too old to follow the log from, or to write the next version."""
        return self.clock.now_ms() - self._seen_ms > FOLLOW_AGE_MS_MAX

    def advance(self, commits: Sequence[CommitActions], began_ms: int) -> State:
        """Add commits that follow the current state; `began_ms` is when the search for them began.

        Those that it has already change nothing. A process may sleep between any two requests: what it has seen is as
        old as the first of them.
        """
        with self.lock:
            known = -1 if self.state is None else self.state.version
            new = [commit for commit in commits if commit.version > known]
            self._recent.extend(new)
            self._id_chars += sum(map(_id_chars, new))
            while len(self._recent) > RECENT_COMMITS_MAX or self._id_chars > RECENT_ID_CHARS_MAX:
                self._id_chars -= _id_chars(self._recent.popleft())
            return self._keep(replay(self.state, new), began_ms)

    def since(self, version: int, *, event_ids: bool = False) -> list[CommitActions] | None:
        """Return the commits after a version up to the current state, from memory; None if it lacks some of them.

        Those whose event ids were released count as missing where `event_ids` are wanted.
        """
        with self.lock:
            if self.state is None or version > self.state.version or (event_ids and version < self._released):
                return None
            count = self.state.version - version
            return list(islice(reversed(self._recent), count))[::-1] if count <= len(self._recent) else None

    def release_event_ids(self, version: int) -> None:
        """Drop the event ids of the commits in memory up to a version, because a window holds them."""
        with self.lock:
            for at in reversed(range(len(self._recent))):
                commit = self._recent[at]
                if commit.version <= self._released:
                    break
                if commit.version <= version and not EVENT_TEXTS.isdisjoint(commit.info):
                    self._id_chars -= _id_chars(commit)
                    self._recent[at] = commit.without_info(EVENT_TEXTS)
            self._released = max(self._released, version)

    def at(self, version: int) -> State:
        """Read the state of one version. Raises `VersionNotFound` or `VersionExpired`."""
        newest = self.state
        if newest is not None and newest.version == version:
            return newest
        for tries_left in reversed(range(LISTINGS_MAX)):
            listing = self.listing()
            try:
                return self._loaded(listing, version)[1]
            except Unavailable as error:  # clean-up may have taken what was listed: then the next listing lacks it
                if not tries_left or not isinstance(error.__cause__, ObjectNotFound):
                    raise
        raise AssertionError("the last try returns or raises")

    def states(self, versions: Iterable[int]) -> Iterator[State]:
        """Yield the states of those of some versions that the log still makes, from the oldest on.

        One LIST, and each checkpoint and commit is read once where one version follows from another.
        """
        wanted = sorted(set(versions))
        if not wanted:
            return
        listing = self.listing()
        state: State | None = None
        for version in wanted:
            try:
                segment = find_segment(listing, version)
                base = segment.checkpoint[0].version if segment.checkpoint else -1
                if state is not None and base <= state.version:
                    state = replay(state, self.read_commits(range(state.version + 1, version + 1)))
                else:
                    state = self._loaded(listing, version)[1]
            except (Corrupt, Unavailable, VersionExpired, VersionNotFound):  # clean-up may have taken what was listed
                try:
                    find_segment(self.listing(), version)
                except (Corrupt, VersionExpired, VersionNotFound):
                    continue
                state = self.at(version)
            yield state

    def write(self, version: int, data: bytes, txn_id: str) -> CommitActions | None:
        """Write a commit. Returns None if it is ours, or the winner's commit if that version is taken.

        Raises `CommitUnknown` when the outcome could not be learnt, so that the caller deletes nothing; `Unavailable`
        if nothing happened.
        """
        return put_once(
            self.store,
            self.clock,
            self.root + commit_name(version),
            data,
            what=f"version {version}",
            read=lambda: self.read_commit(version),
            is_ours=lambda stored: stored.info.get("txnId") == txn_id,
        )

    def confirm(self, version: int, data: bytes) -> None:
        """Make sure that a commit of ours, `data`, which took very long is part of the log.

        A writer that slept between its last look and its PUT may have written a version that had come and gone: then
        commits that follow it are older. Raises `TransactionExpired` in that case, which changes nothing, and
        `CommitUnknown` where the log no longer tells: an erasure writes commits again, later than those that follow.
        """
        times = self.written_ms(version)
        if version not in times:
            raise unknown(f"version {version}")
        if any(stored_ms < times[version] for stored_ms in times.values()):
            if self.store.get(self.root + commit_name(version)) != data:
                raise unknown(f"version {version}")
            msg = f"this process slept until version {version} was committed and cleaned up: its commit has no effect"
            raise TransactionExpired(msg)

    def checkpoint(self, state: State, tombstones_after_ms: int, form: Form | None = None, *, v2: bool = False) -> int:
        """Write a state's checkpoint and the hint to it. Returns how many bytes were written.

        If the state is the current one, it uses the checkpoint from now on.
        """
        form = form or Form()
        began_ms = self.clock.now_ms()
        if v2:
            written = put_v2_checkpoint(self.store, self.root, state, tombstones_after_ms, form, self.clock)
        else:
            written = put_checkpoint(self.store, self.root, state, tombstones_after_ms, form)
        with self.lock:
            self.checkpoint_version = state.version
            if self.state is not None and self.state.version == state.version:
                self.state = written.state
                self._based_ms = began_ms
        return sum(written.sizes.values())

    def _lost(self) -> None:
        self.state = None

    def _keep(self, state: State, began_ms: int) -> State:
        self.state = state
        self._seen_ms = began_ms
        return state


def _id_chars(commit: CommitActions) -> int:
    return sum(len(str(commit.info.get(key, ""))) for key in EVENT_TEXTS)


def version_at(log: Log, timestamp_ms: int, oldest_readable: int = 0) -> int:
    """Return the newest version whose timestamp is at or before a moment.

    In-commit timestamps increase with the version, so a binary search reads few commits. Versions from before there
    were any go by the files' times, each at least one millisecond after the one before, as the protocol's clients do.
    Raises `TableNotFound`, `VersionNotFound` before the first version, and `VersionExpired` before the oldest that is
    left: in the log, or by the table's own record, `oldest_readable`.
    """
    state = log.state or log.open()
    listing, stored_ms = log.timed_listing()
    oldest = max(oldest_version(listing) or 0, oldest_readable)
    versions = [version for version in sorted(listing.commits) if version >= oldest]
    since = timed_since(state.protocol, state.metadata)
    timed = [version for version in versions if since is not None and version >= since]
    newest = _by_commit_time(log, timed, timestamp_ms)
    if newest is None:
        untimed = file_times(stored_ms, since).items()
        newest = max((version for version, ms in untimed if version >= oldest and ms <= timestamp_ms), default=None)
    if newest is not None:
        return newest
    if oldest > 0:
        raise VersionExpired(f"the version at that time has expired; the oldest version that can be read is {oldest}")
    raise VersionNotFound("the table did not exist yet at that time")


def _by_commit_time(log: Log, versions: Sequence[int], timestamp_ms: int) -> int | None:
    low, high = 0, len(versions)
    while low < high:
        middle = (low + high) // 2
        commit = log.read_commit(versions[middle])
        if commit is None or commit.timestamp_ms <= timestamp_ms:  # clean-up takes the oldest alone
            low = middle + 1
        else:
            high = middle
    return versions[low - 1] if low else None


def file_times(stored_ms: Mapping[int, int], since: int | None) -> dict[int, int]:
    """Return the times of the commits that do not contain their own, by version: those before `since`, or all. Pure.

    They are those of their files, `stored_ms`, whatever a commit says in its `commitInfo`: no later than those of the
    versions that follow, since an erasure writes commits again, and each at least one millisecond after the one before,
    like those of other Delta clients.
    """
    times: dict[int, int] = {}
    last = -1
    for version, taken in sorted(taken_ms(stored_ms).items()):
        if since is not None and version >= since:
            break
        times[version] = last = max(last + 1, taken)
    return times
