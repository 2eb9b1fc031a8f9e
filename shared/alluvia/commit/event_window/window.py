"""The ids of recently committed events, which make ingestion exactly-once. Pure.

An ingest commit carries a 96-bit fingerprint of each of its events' ids, and a 32-bit hash of what the event says. With
n ids in the window, the probability that a new event has a known fingerprint by chance is n / 2**96: for ten million
ids about 1 in 8 * 10**21. The probability that a different event under a known id counts as the same is 1 / 2**32.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from hashlib import blake2b
from itertools import islice
from typing import Any

from alluvia.commit.event_window.id_files import CommitFiles, IdFiles, files_of
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, FINGERPRINT_BYTES, CommitIds, IdRun, WantedIds, digests
from alluvia.delta.lineage import Gaps, in_gap, undone_versions, version_gaps
from alluvia.delta.log.commit import EVENT_CONTENTS, EVENT_FILES, EVENT_IDS, CommitActions
from alluvia.delta.properties import read_properties
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

NEWEST_IDS_MAX = 4096
"""So many ids are known by a dict; when there are more, they become a run."""
RUN_IDS_MAX = 1 << 21
"""Runs are put together up to this size. One of them may hold forgotten ids, until all of its are."""
UNKNOWN = bytes(CONTENT_BYTES)
"""The content of an event whose commit carries ids alone, as those of earlier versions of this library do."""
_WITH_SOURCE = b"source"
_ENCODED_AT_ONCE = 3 << 10  # values: a multiple of three, so that no part but the last one is padded


def fingerprints(event_ids: Iterable[str], sources: Iterable[str | None] | None = None) -> list[bytes]:
    """Return the fingerprint of each event id within its source; None for none."""
    hashes = {source: _begun(source) for source in ({None} if sources is None else set(sources))}
    if sources is None or len(hashes) == 1:
        [begun] = hashes.values()
        return digests(begun, map(str.encode, event_ids))
    pairs = zip(event_ids, sources, strict=True)
    return [digests(hashes[source], (event_id.encode(),))[0] for event_id, source in pairs]


def _begun(source: str | None) -> blake2b:
    """Return the hash of the common start of all ids of a source."""
    if source is None:
        return blake2b(digest_size=FINGERPRINT_BYTES)
    name = source.encode()
    return blake2b(b"%d:%b" % (len(name), name), digest_size=FINGERPRINT_BYTES, person=_WITH_SOURCE)


def encode_event_ids(prints: Sequence[bytes], contents: Sequence[bytes]) -> dict[str, str]:
    """Return events as commitInfo carries them, base64: 16 characters of fingerprint and 5 of content each."""
    return {EVENT_IDS: _joined_base64(prints), EVENT_CONTENTS: _joined_base64(contents)}


def _joined_base64(values: Sequence[bytes]) -> str:
    """Return joined values in base64, made of parts that take no fresh memory."""
    parts = (values[at : at + _ENCODED_AT_ONCE] for at in range(0, len(values), _ENCODED_AT_ONCE))
    return "".join([b64encode(b"".join(part)).decode() for part in parts])


def joined_event_ids(infos: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the events of several commitInfos as one carries them."""
    infos = list(infos)
    each_ids = [event_ids_of(CommitActions(0, dict(info))) for info in infos]
    files = [each for info in infos for each in info.get(EVENT_FILES, ())]
    named = {EVENT_FILES: files} if files else {}
    if not any(each.prints for each in each_ids):
        return named
    joined = b"".join(each.prints for each in each_ids), b"".join(each.contents for each in each_ids)
    return encode_event_ids(parts(joined[0], FINGERPRINT_BYTES), parts(joined[1], CONTENT_BYTES)) | named


def event_ids_of(commit: CommitActions) -> CommitIds:
    """Return the event ids that a commit carries. Raises `Corrupt` if they cannot be read."""
    prints = _decoded(commit, EVENT_IDS)
    contents = _decoded(commit, EVENT_CONTENTS)
    count, rest = divmod(len(prints), FINGERPRINT_BYTES)
    if rest or (contents and len(contents) != count * CONTENT_BYTES):
        msg = f"version {commit.version}: its event ids cannot be read: {len(prints)} bytes, {len(contents)} of content"
        raise Corrupt(msg)
    return CommitIds(commit.version, commit.timestamp_ms, prints, contents or UNKNOWN * count)


def _decoded(commit: CommitActions, key: str) -> bytes:
    text = commit.info.get(key)
    if not text:
        return b""
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise Corrupt(f"version {commit.version}: its event ids cannot be read: {error}") from error


def parts(joined: bytes, size: int) -> list[bytes]:
    """Split joined values of one size."""
    return [joined[at : at + size] for at in range(0, len(joined), size)]


@dataclass(frozen=True, slots=True)
class WindowRules:
    """For how long ids are remembered, and of which commits: not those of other tables, or those that were undone."""

    window_ms: int
    gaps: Gaps = ()
    undone: Gaps = ()

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> WindowRules:
        """Read the rules of a table from its properties. Raises `Corrupt`."""
        window_ms = read_properties(configuration).dedup_window_ms
        return cls(window_ms, version_gaps(configuration), undone_versions(configuration))


class DedupWindow:
    """Event ids by the time of their commit; those older than the window are forgotten.

    Time here is the log's own: the newest commit seen, never this machine's clock. Commits of other tables are passed
    over. Those that a restore has undone are kept, for a restore that goes back to them; their events are not known.

    The ids are in sorted runs, oldest first, of which few are small: like the levels of an LSM tree, each is at least
    twice as large as the next, or full. The newest commits' are looked up in a dict. Of commits that have their ids in
    files, the window knows only where these are.
    """

    def __init__(
        self, rules: WindowRules, version: int = -1, runs: Sequence[IdRun] = (), files: Sequence[CommitFiles] = ()
    ) -> None:
        self.rules = rules
        self.version = version
        self._time_ms = max(runs[-1].times_ms[-1] if runs else 0, files[-1].timestamp_ms if files else 0)
        self._files = [each for each in files if not in_gap(rules.gaps, each.version)]
        own = (run.without(lambda each: in_gap(rules.gaps, each)) for run in runs)
        self._runs = [run for run in own if len(run)]
        self._borrowed = self._borrowed_ids()
        self._bare_version = max((run.versions[-1] for run in self._runs if not run.has_content), default=-1)
        self._newest: deque[CommitIds] = deque()
        self._newest_ids = 0
        self._found: dict[bytes, list[tuple[int, bytes]]] = {}
        self._looked_up = 0
        self._forget()

    def copy(self) -> DedupWindow:
        """Return a window that holds the same, and goes on by itself."""
        self._settle()
        other = DedupWindow(self.rules, self.version, files=self._files)
        other._runs = [copy(run) for run in self._runs]  # which forget, each by itself
        other._time_ms, other._borrowed, other._bare_version = self._time_ms, self._borrowed, self._bare_version
        return other

    @property
    def has_bare_ids(self) -> bool:
        """Whether the window may hold ids whose content is unknown, and whose fingerprint does not cover the source."""
        oldest = next((run.versions[run.first_live] for run in self._runs), None)
        if oldest is None:
            oldest = self._newest[0].version if self._newest else self.version + 1
        return self._bare_version >= oldest

    def held(self, prints: Sequence[bytes], undone: Gaps | None = None) -> dict[bytes, set[bytes]]:
        """Return the contents under which the window holds each fingerprint that it knows.

        What versions in the ranges `undone` hold does not count; by default, those that restores have undone.
        """
        self._index_newest()
        undone = self.rules.undone if undone is None else undone
        held: dict[bytes, set[bytes]] = {}
        for each in self._found.keys() & prints if self._found else ():
            for version, content in self._found[each]:
                if not in_gap(undone, version):
                    held.setdefault(each, set()).add(content)
        wanted = WantedIds(prints)
        for run in self._runs:
            for at, version, content in run.find(wanted):
                if not in_gap(undone, version):
                    held.setdefault(prints[at], set()).add(content)
        return held

    def files(self, undone: Gaps, after: int = -1) -> list[CommitFiles]:
        """Return where the ids are that commits after a version do not carry. `undone` is that of `held`."""
        return [each for each in self._files if each.version > after and not in_gap(undone, each.version)]

    def drop(self, files: CommitFiles) -> None:
        """Forget the ids of a commit that are in files."""
        self._files.remove(files)

    def take_headers(self, before: DedupWindow) -> None:
        """Take over the parts of id files that an older window of the same table has read."""
        known = {each.files: each.headers for each in before.files(())}
        for each in self._files:
            each.headers = known.get(each.files, each.headers)

    def add(self, ids: CommitIds, files: Iterable[IdFiles] = ()) -> None:
        """Take the event ids of the next commit."""
        self.version, self._time_ms = ids.version, ids.timestamp_ms
        if not in_gap(self.rules.gaps, ids.version):
            self._files += [CommitFiles(ids.version, ids.timestamp_ms, each) for each in files]
        if len(ids) and not in_gap(self.rules.gaps, ids.version):
            self._newest.append(ids)
            self._newest_ids += len(ids)
            if not any(ids.contents):
                self._bare_version = ids.version
            if self._newest_ids >= RUN_IDS_MAX:
                self._settle()
        self._forget()

    def follow(self, commits: Iterable[CommitActions]) -> None:
        """Take the commits that the window has not seen yet."""
        for commit in commits:
            if commit.version > self.version:
                self.add(event_ids_of(commit), files_of(commit))

    def obey(self, rules: WindowRules) -> None:
        """Go on by other rules for the same versions. What is forgotten already stays so."""
        self.rules = rules
        self._forget()

    def runs(self) -> Iterator[IdRun]:
        """Yield all that the window holds, oldest first."""
        self._settle()
        for run in self._runs:
            yield run.compacted() if run.first_live else run

    def entries(self) -> Iterator[CommitIds]:
        """Yield the event ids of each commit in the window, sorted."""
        for run in self.runs():
            yield from run.by_commit()

    def _index_newest(self) -> None:
        if self._newest_ids > NEWEST_IDS_MAX:
            self._settle()
        for commit in islice(self._newest, self._looked_up, None):
            for each, content in event_id_pairs(commit):
                self._found.setdefault(each, []).append((commit.version, content))
        self._looked_up = len(self._newest)

    def _settle(self) -> None:
        """Make a run of the newest commits, and one of it and those before it that are too small."""
        if not self._newest:
            return
        self._runs.append(IdRun.of(self._newest))
        self._newest.clear()
        self._found.clear()
        self._newest_ids = self._looked_up = 0
        while len(self._runs) > 1:
            before, last = self._runs[-2:]
            if len(before) >= 2 * len(last) or len(before) + len(last) > RUN_IDS_MAX:
                return
            self._runs[-2:] = [before.followed_by(last)]

    def _forget(self) -> None:
        before_ms = self._time_ms - self.rules.window_ms
        if self._files:
            self._files = [each for each in self._files if each.timestamp_ms >= before_ms]
        while self._runs and self._runs[0].forget(before_ms):
            self._runs.pop(0)
            if self._borrowed >= 2 * self._borrowed_ids():
                self._runs = [run.compacted() if run.borrowed else run for run in self._runs]
                self._borrowed = 0
        while not self._runs and self._newest and self._newest[0].timestamp_ms < before_ms:
            commit = self._newest.popleft()
            self._newest_ids -= len(commit)
            if self._looked_up:
                self._looked_up -= 1
                self._unlearn(commit)

    def _unlearn(self, commit: CommitIds) -> None:
        for each, _ in event_id_pairs(commit):
            places = self._found.pop(each, [])
            if len(places) > 1:
                self._found[each] = places[1:]

    def _borrowed_ids(self) -> int:
        return sum(len(run) for run in self._runs if run.borrowed)


def event_id_pairs(commit: CommitIds) -> Iterator[tuple[bytes, bytes]]:
    """Yield fingerprint and content of each id."""
    return zip(parts(commit.prints, FINGERPRINT_BYTES), parts(commit.contents, CONTENT_BYTES), strict=True)
