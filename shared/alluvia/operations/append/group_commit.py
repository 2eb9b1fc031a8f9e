"""Commit rows together with those of other writers: each offers its rows, and one of them commits for all.

There is no election. A writer that finds that it is its turn lists the offers and tries to write the next version with
all of them; the log decides who has done it. `commit.commit_offers` says how an offer ends. A commit names the offer
whose owner comes next, so that usually one writer tries at a time; the others try when nothing has happened for a
while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.commit_offers import (
    AGE_MS_MAX,
    BYTES_MAX,
    COMMITS,
    CONTENTION_MS,
    LIFE,
    OFFERS,
    ROWS_MAX,
    CommitInterval,
    Offer,
    decode_offer,
    is_over,
    next_offer,
    offer_at,
    offer_name,
    offers_in,
    taken_by,
    taken_info,
)
from alluvia.commit.event_window.window import encode_event_ids
from alluvia.commit.handle import TableHandle
from alluvia.delta.lineage import undone_versions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.committer import unknown
from alluvia.delta.odd_times import with_odd_times
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import BranchGone, Conflict, Corrupt, Invalid, ObjectNotFound, Unavailable
from alluvia.operations.dedup import follow_window
from alluvia.operations.planning.layout import row_check
from alluvia.store import ObjectInfo

WINDOW_MS_MIN = 30 * 60_000
"""Rows are offered only to tables that remember event ids for longer than anybody waits for an offer."""
WAIT_MS_MAX = 10 * 60_000
GROUP_BYTES_MAX = 16 << 20
READ_AT_ONCE = 256
"""How many offers, most of them of a few KB, are read at the same time."""
LIST_BACK = 2
"""How many versions older offers may come late: their owners may know somewhat older versions."""
PASSED_MAX = 2
"""Stop yielding to other writers once this many commits of offers have left this one out."""
RANK_MAX = 64
"""Stop extending the wait after yielding to this many older offers."""
LOOK_MS = 300
"""Refresh the log before offering if the last refresh is older than this."""
LOOK_AT_ONCE = 4
_PACE_MS_MIN, _PACE_MS_MAX = 2, 200
_START, _PATIENCE, _TURN, _FIRST_LOOK = 4.0, 8.0, 6.0, 2.0
"""Waits as multiples of the time of a request: the longest of a writer that may be first; the shortest of a writer that
knows that another will commit, which waits at most twice that; the addition for each older offer, whose owner may have
its turn; and the wait before the first look, where the time of the next commit is unknown."""
_POLL, _POLL_GROWTH, _POLL_MAX = 0.5, 1.5, 20.0
"""The wait between looks from when a commit is expected, how it grows, and the longest, as such multiples."""
_RECENT = 6
"""The number of newest commits whose offers predict the next one."""


def may_offer(handle: TableHandle, snapshot: Snapshot, rows: pa.Table) -> bool:
    """Whether rows may be offered to other writers of a table."""
    window = handle.window
    return (
        handle.store.parallel
        and not handle.is_staged
        and len(rows) <= ROWS_MAX
        and rows.nbytes <= BYTES_MAX
        and snapshot.settings.dedup_window_ms >= WINDOW_MS_MIN
        and window is not None
        and not window.has_bare_ids
    )


def is_crowded(handle: TableHandle) -> bool:
    """Whether other writers commit to a table at the same time, as far as is known here."""
    now_ms = handle.clock.now_ms()
    if not handle.contention.is_recent(now_ms) and handle.log.state is not None:
        recent = handle.log.since(max(-1, handle.log.state.version - 4)) or ()
        if any(len(offers_in(each)) > 1 and each.timestamp_ms > now_ms - CONTENTION_MS for each in recent):
            handle.contention.note(now_ms)
    return handle.contention.is_recent(now_ms)


def look(handle: TableHandle) -> bool:
    """Look for new commits, unless that was done just now. Returns whether there are any."""
    if handle.log.state is None or handle.log.age_ms <= LOOK_MS:
        return False
    with handle.lock:
        before = handle.at_hand().version
        return handle.log.refresh(LOOK_AT_ONCE).version != before


def commit_together(
    handle: TableHandle,
    snapshot: Snapshot,
    rows: pa.Table,
    prints: Sequence[bytes],
    contents: Sequence[bytes],
    odd_times: Mapping[str, int],
) -> int | None:
    """Have rows committed that fit a snapshot and whose ids are new to it. Returns the version that holds them.

    odd_times: how many of them have an odd time, by kind.

    None if the offer came to nothing, because others have brought one of the ids or changed the table: then look
    everything up again. Raises a `Conflict` if the rows no longer fit, and `CommitUnknown` if another writer may still
    commit them; sent again, they are stored once.
    """
    table_id = snapshot.state.metadata.id
    offer = Offer(handle.clock.new_id(), table_id, snapshot.version, rows, prints, contents, odd_times)
    owner = _Owner(handle, snapshot, offer)
    try:
        return owner.settle()
    except BranchGone:
        raise
    except (Unavailable, Invalid) as error:
        if owner.refused:
            raise
        raise unknown(f"a group of rows for table {handle.name}") from error


class _Owner:
    """An offer's owner, until the offer has been taken or is over."""

    def __init__(self, handle: TableHandle, snapshot: Snapshot, offer: Offer) -> None:
        self.refused = False
        self._handle = handle
        self._log = handle.log
        self._clock = handle.clock
        self._snapshot = snapshot
        self._offer = offer
        self._key = handle.root + offer_name(offer.base, offer.id)
        self._undone = undone_versions(snapshot.properties)
        self._began_ms = handle.clock.now_ms()
        self._seen = -2
        self._passed = 0
        self._try_at_ms = 0.0
        self._tries = 0
        self._misses = -1
        self._named = False
        self._gave_way = False
        self._alone = False

    def settle(self) -> int | None:
        """Put the offer, and wait for its outcome, or commit it."""
        self._handle.store.put(self._key, self._offer.encode())
        self._pace_ms = min(_PACE_MS_MAX, max(_PACE_MS_MIN, self._clock.now_ms() - self._began_ms))
        while True:
            with self._handle.lock:
                window = follow_window(self._handle)
                commits = self._since(self._offer.base)
                taken = taken_by(self._offer.id, commits)
                if taken is not None:
                    self._handle.store.check_lasts()
                    if len(offers_in(taken)) > 1:
                        self._handle.contention.note(self._clock.now_ms())
                    return taken.version
                if is_over(commits) or window.held(self._offer.prints, self._undone):
                    self._handle.transaction(self._snapshot).check(commits, Changes("WRITE"))
                    return None
            now_ms = self._clock.now_ms()
            if now_ms - self._began_ms > WAIT_MS_MAX:
                raise unknown(f"a group of rows for table {self._handle.name}")
            self._plan(commits, now_ms)
            if now_ms >= self._try_at_ms:
                version = self._lead(self._offer.base + len(commits))
                if version is not None:
                    return version
                wait_ms = self._pace_ms * 2.0 ** min(self._tries, 8) * (0.5 + self._clock.uniform())
                self._try_at_ms = max(self._try_at_ms, self._clock.now_ms() + wait_ms)
                self._tries += 1
                continue
            self._clock.sleep(max(1.0, min(self._pause_ms(now_ms), self._try_at_ms - now_ms)) / 1000)
            self._look()

    def _look(self) -> None:
        """Read the commits that there should be by now, and no more."""
        known = -1 if self._log.state is None else self._log.state.version
        most = min(LOOK_AT_ONCE, self._interval.missed(self._clock.now_ms()))
        self._misses = 0 if self._log.refresh(most, most=most).version > known else self._misses + 1

    def _pause_ms(self, now_ms: float) -> float:
        """Return how long to wait before the next look: until a commit is expected, and then longer each time.

        Where hundreds wait, their looks are what S3 limits first.
        """
        stale = self._interval.is_stale(now_ms)
        if self._misses < 0 and stale:
            return self._pace_ms * _FIRST_LOOK
        if self._misses <= 0 and not stale:
            return self._interval.due_ms - now_ms
        return self._pace_ms * min(_POLL_MAX, _POLL * _POLL_GROWTH ** max(0, self._misses))

    def _since(self, version: int) -> Sequence[CommitActions]:
        """Return the commits after a version. Raises `Unavailable` if some are gone."""
        known = self._log.since(version)
        if known is None:
            newest = -1 if self._log.state is None else self._log.state.version
            known = self._log.read_commits(range(version + 1, newest + 1))
        return known

    def _plan(self, commits: Sequence[CommitActions], now_ms: int) -> None:
        """Decide when to try, at first and after each commit of offers: at once if it names this one."""
        groups = [commit for commit in commits or self._log.since(self._offer.base - 1) or () if offers_in(commit)]
        seen = groups[-1].version if groups else -1
        if seen == self._seen:
            return
        self._seen = seen
        if groups and len(offers_in(groups[-1])) > 1:
            self._handle.contention.note(now_ms)
        recent = [each.timestamp_ms for each in self._log.since(max(-1, seen - _RECENT)) or () if offers_in(each)]
        self._interval = CommitInterval.of(recent[-COMMITS:], now_ms, self._pace_ms)
        self._passed += seen > self._offer.base
        named = next_offer(groups[-1]) if groups else None
        self._named = named == (self._offer.base, self._offer.id)
        self._gave_way = self._named or self._passed > PASSED_MAX
        soon = named is None or self._gave_way
        wait = _START * self._clock.uniform() if soon else _PATIENCE * (1 + self._clock.uniform())
        self._try_at_ms = now_ms + (0 if self._named else wait * self._pace_ms)

    def _lead(self, tip: int) -> int | None:
        """Try to commit this offer and all that may come with it as the version after `tip`."""
        self._start = self._oldest(tip)
        listed = self._listed(self._start)
        others = self._young(listed)
        before = sum(_age(each) < _age(listed[self._key]) for each in others)
        if before and not self._gave_way:
            self._gave_way = True
            turn = _TURN if self._seen >= 0 else 1  # at first, others commit alone, and may well win
            self._try_at_ms = self._clock.now_ms() + self._pace_ms * (_PATIENCE + turn * min(before, RANK_MAX))
            return None
        sizes = accumulate(each.size for each in others)
        within = [each for each, size in zip(others, sizes, strict=True) if size <= GROUP_BYTES_MAX]
        for each in others[len(within) :]:
            del listed[each.key]  # they come next
        offers = self._handle.store.map(self._read, within, READ_AT_ONCE)
        with self._handle.lock:
            snapshot = self._handle.at_hand()
            if snapshot.version != tip:
                return None
            group = self._admitted([self._offer, *(each for each in offers if each is not None)])
        if not group or group[0] is not self._offer:
            return None
        transaction = self._handle.transaction(snapshot)  # whose age is that of the file, too
        adds, following = self._written(snapshot, group, listed)
        if not adds:
            return None
        changes = self._changes(group, adds, following)

        def after_loss(_: Sequence[CommitActions]) -> Changes | None:
            """Try again while all of the group wait: their file is there. Otherwise another writer commits for some."""
            return changes if len(self._admitted(group)) == len(group) else None

        try:
            commit = transaction.commit(changes, after_loss, backs_off=False)
        except Conflict:  # the commits say how this offer ended
            return None
        if commit is None:
            return None
        if len(group) > 1 or following is not None:
            self._handle.contention.note(self._clock.now_ms())
        else:
            self._handle.contention.clear()
        return commit.version

    def _oldest(self, tip: int) -> int:
        """Return the base of the oldest offers to look for: the last commit of offers has left none before it."""
        oldest = max(0, tip - LIFE)
        groups = [commit for commit in self._log.since(oldest) or () if offers_in(commit)]
        if not groups:
            return oldest
        left, _ = next_offer(groups[-1]) or (groups[-1].version - 1, "")
        return max(oldest, min(self._offer.base, left) - LIST_BACK)

    def _listed(self, base: int) -> dict[str, ObjectInfo]:
        """Return the offers since a base, by key."""
        root = self._handle.root
        return {info.key: info for info in self._handle.store.list(root + OFFERS, root + offer_name(max(0, base)))}

    def _young(self, listed: dict[str, ObjectInfo]) -> list[ObjectInfo]:
        """Return the offers of others whose owners may still be there, oldest first.

        The time is the store's: that of this owner's offer, and what has passed here since it was put.
        """
        own = listed.get(self._key)
        if own is None or self._alone:
            return []
        oldest_ms = own.modified_ms + self._clock.now_ms() - self._began_ms - AGE_MS_MAX
        commits = self._log.since(self._start) or ()
        gone = {self._offer.id, *(each for commit in commits for each in offers_in(commit))}
        young = (each for each in listed.values() if each.modified_ms >= oldest_ms)
        return sorted((each for each in young if offer_at(each.key)[1] not in gone), key=_age)

    def _read(self, info: ObjectInfo) -> Offer | None:
        """Return an offer; None if vacuum has deleted it, or it cannot be read."""
        try:
            return decode_offer(offer_at(info.key)[1], self._handle.store.get(info.key))
        except (ObjectNotFound, Corrupt):
            return None

    def _admitted(self, offers: Sequence[Offer]) -> list[Offer]:
        """Return the offers that wait and whose ids are new, also among themselves."""
        window = follow_window(self._handle)
        known = set(window.held([each for offer in offers for each in offer.prints], self._undone))
        admitted = []
        for offer in offers:
            if self._waits(offer) and known.isdisjoint(offer.prints):
                known.update(offer.prints)
                admitted.append(offer)
        return admitted

    def _waits(self, offer: Offer) -> bool:
        """Whether an offer is for the table as it is, and neither taken nor over."""
        fits = offer.table_id == self._offer.table_id and offer.rows.schema.equals(self._offer.rows.schema)
        commits = self._log.since(offer.base) if fits else None
        return commits is not None and taken_by(offer.id, commits) is None and not is_over(commits)

    def _changes(self, group: Sequence[Offer], adds: Sequence[AddFile], following: tuple[int, str] | None) -> Changes:
        prints = [each for offer in group for each in offer.prints]
        contents = [each for offer in group for each in offer.contents]
        info = {**encode_event_ids(prints, contents), **taken_info([each.id for each in group], following)}
        return Changes("WRITE", {"mode": "Append"}, adds=adds, info=info)

    def _written(
        self, snapshot: Snapshot, group: Sequence[Offer], listed: dict[str, ObjectInfo]
    ) -> tuple[Sequence[AddFile], tuple[int, str] | None]:
        """Write the rows of a group, and look meanwhile who comes next; no file if the rows of another are refused."""
        writer = self._handle.writer(snapshot, row_check(snapshot.settings.constraints, snapshot.schema))
        adds: list[AddFile] = []
        later: list[ObjectInfo] = []

        def write() -> None:
            rows = pa.concat_tables([each.rows for each in group])
            written, odd_times = writer.write(rows), sum((Counter(each.odd_times) for each in group), Counter())
            adds.extend(with_odd_times(written, odd_times, rows, snapshot.physical_name("ts")))

        def list_again() -> None:
            later.extend(info for key, info in self._listed(snapshot.version - 1).items() if key not in listed)

        jobs: list[Callable[[], None]] = [write, list_again] if len(listed) > 1 else [write]
        try:
            self._handle.store.map(lambda job: job(), jobs)
        except Invalid:
            self._alone, self.refused = len(group) > 1, len(group) == 1
            if self.refused:
                raise
            return [], None
        following = min(later, key=_age, default=None)
        return adds, None if following is None else offer_at(following.key)


def _age(info: ObjectInfo) -> tuple[int, str]:
    return info.modified_ms, info.key
