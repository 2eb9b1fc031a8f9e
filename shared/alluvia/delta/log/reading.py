"""What is read of a table's log: listings, commits, and states of versions, which checkpoints must agree with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alluvia.delta.log.checkpoints.putting import Hint, parse_last_checkpoint
from alluvia.delta.log.checkpoints.reader import (
    HEAD_BYTES,
    FalseCheckpoint,
    difference,
    disagreement,
    files_in,
    first_lines,
    read_checkpoint,
)
from alluvia.delta.log.commit import CommitActions, has_in_commit_timestamps, parse_commit
from alluvia.delta.log.files.sidecars import Fetch
from alluvia.delta.log.paths import LAST_CHECKPOINT, LOG_FOLDER, CheckpointFile, commit_name, version_prefix
from alluvia.delta.log.replay import (
    Listing,
    Segment,
    State,
    find_segment,
    oldest_version,
    read_listing,
    replay,
    taken_ms,
)
from alluvia.errors import (
    Corrupt,
    ObjectNotFound,
    TableNotFound,
    Unavailable,
    VersionExpired,
    VersionNotFound,
)
from alluvia.store import ByteRange, Store
from alluvia.store.uris import missing_folder

LISTINGS_MAX = 3


class BrokenCheckpoint(Corrupt):
    """A checkpoint whose own files cannot be read, such as an empty or a truncated one."""


class LogReader:
    """Reads the log of the table at `root` (empty, or ending in `/`) in a store. Keeps nothing of it."""

    def __init__(self, store: Store, root: str) -> None:
        self.store = store
        self.root = root

    def _opened(self) -> tuple[Segment, State, list[CommitActions]]:
        """Read the newest version; again where clean-up or an erasure has taken what was listed."""
        for tries_left in reversed(range(LISTINGS_MAX)):
            listing, hint = self._listing_from_hint()
            try:
                return self._loaded(listing, None, hint)
            except Unavailable as error:
                if not tries_left or not isinstance(error.__cause__, ObjectNotFound):
                    raise
        raise AssertionError("the last try returns or raises")

    def read_commit(self, version: int) -> CommitActions | None:
        """Read one commit; None if it does not exist."""
        try:
            return parse_commit(version, self.store.get(self.root + commit_name(version)))
        except ObjectNotFound:
            return None

    def read_commits(self, versions: Sequence[int]) -> list[CommitActions]:
        """Read commits that must exist."""
        names = [commit_name(version) for version in versions]
        return [parse_commit(v, data) for v, data in zip(versions, self._get_all(names), strict=True)]

    def listing(self) -> Listing:
        """List the whole log. Raises `TableNotFound` if there is none."""
        return self._list(LOG_FOLDER)

    def timed_listing(self) -> tuple[Listing, dict[int, int]]:
        """List the whole log; also return when the store took each commit, by its own clock. One LIST."""
        folder = self.root + LOG_FOLDER
        times = {info.key[len(folder) :]: info.modified_ms for info in self.store.list(folder)}
        listing = read_listing(times)
        return listing, {at: times[file.name] for at, file in listing.commits.items()}

    def stored_ms(self, version: int = 0) -> dict[int, int]:
        """Return when the store took the commits from a version on, by its own clock. One LIST.

        Of a commit that an erasure has written again, it is the time of one that follows it.
        """
        return taken_ms(self.written_ms(version))

    def written_ms(self, version: int = 0) -> dict[int, int]:
        """Return when the objects of commits from a version on were written, by the store's clock. One LIST."""
        folder = self.root + LOG_FOLDER
        infos = self.store.list(folder, self.root + version_prefix(version) if version else None)
        times = {info.key[len(folder) :]: info.modified_ms for info in infos}
        return {at: times[file.name] for at, file in read_listing(times).commits.items()}

    def listed_from(self, version: int) -> range:
        """Return the versions from one on whose commits are there, up to the first that is not. One LIST."""
        end = version
        for info in self.store.list(self.root + LOG_FOLDER + "0", self.root + version_prefix(version)):
            end += info.key == self.root + commit_name(end)
        return range(version, end)

    def newest_listed(self) -> int:
        """Return the newest version, without its state; -1 if there is no log. One GET and one LIST, or two."""
        versions = self._listing_from_hint(allow_empty=True)[0].versions
        return versions[-1] if versions else -1

    def oldest(self) -> int:
        """Return the oldest version that the log can still make."""
        oldest = oldest_version(self.listing())
        if oldest is None:
            raise Corrupt(f"the log of {self.root or 'the table'} has no readable version")
        return oldest

    def hint(self) -> Hint | None:
        """Read `_last_checkpoint`. None if it is absent or broken."""
        try:
            return parse_last_checkpoint(self.store.get(self.root + LAST_CHECKPOINT))
        except ObjectNotFound:
            return None

    def _listing_from_hint(self, *, allow_empty: bool = False) -> tuple[Listing, Hint | None]:
        """List from the checkpoint that `_last_checkpoint` names; all of it if the hint is absent, broken or stale."""
        hint = self.hint()
        if hint is not None:
            listing = self._list(version_prefix(hint.version), allow_empty=True)
            if listing.checkpoints:
                return listing, hint
        return self._list(LOG_FOLDER, allow_empty=allow_empty), hint

    def _list(self, start: str, *, allow_empty: bool = False) -> Listing:
        folder = self.root + LOG_FOLDER
        infos = self.store.list(folder, None if start == LOG_FOLDER else self.root + start)
        listing = read_listing(info.key[len(folder) :] for info in infos)
        if not listing.versions and not allow_empty:
            raise TableNotFound(_not_found(self.root, self.store.uri))
        return listing

    def _loaded(
        self, listing: Listing, version: int | None = None, hint: Hint | None = None
    ) -> tuple[Segment, State, list[CommitActions]]:
        """Read a version; by way of an earlier checkpoint, and the commits after it, where one cannot be read.

        Raises what the newest checkpoint raises where the log lacks the commits to do without it.
        """
        segment = find_segment(listing, version)
        try:
            return segment, *self._load(segment, hint)
        except BrokenCheckpoint as error:
            whole, first = self.listing(), error
        broken = {segment.checkpoint[0].version}
        while True:
            left = {at: files for at, files in whole.checkpoints.items() if at not in broken}
            try:
                other = find_segment(Listing(whole.commits, left), segment.version)
            except (Corrupt, VersionExpired, VersionNotFound):
                raise first from None
            try:
                return other, *self._load(other)
            except BrokenCheckpoint:
                broken.add(other.checkpoint[0].version)

    def can_read(self, checkpoint: Sequence[CheckpointFile]) -> bool:
        """Whether a checkpoint's own files can be read. One GET for each."""
        names = [LOG_FOLDER + part.name for part in checkpoint]
        try:
            self._checkpoint(checkpoint[0].version, names, self._get_all(names))
        except BrokenCheckpoint:
            return False
        return True

    def _checkpoint(self, version: int, names: Sequence[str], data: Sequence[bytes]) -> State:
        try:
            return read_checkpoint(version, list(zip(names, data, strict=True)), self._sidecars_of(names))
        except FalseCheckpoint:
            raise
        except Corrupt as error:
            raise BrokenCheckpoint(*error.args) from error

    def _load(self, segment: Segment, hint: Hint | None = None) -> tuple[State, list[CommitActions]]:
        parts = [LOG_FOLDER + part.name for part in segment.checkpoint]
        own = [] if segment.witness is None else [commit_name(segment.witness)]
        data = self._get_all([*parts, *own, *(commit_name(version) for version in segment.commits)], heads=own)
        state, after = None, len(parts) + len(own)
        if parts:
            state = self._checkpoint(segment.checkpoint[0].version, parts, data[: len(parts)])
            state = self._agreed(state, segment, data[len(parts) : after], hint)
        commits = [parse_commit(v, body) for v, body in zip(segment.commits, data[after:], strict=True)]
        whole = replay(state, commits)
        if not commits and segment.witness is None:
            whole = replace(whole, timestamp_ms=self._checkpoint_time(whole))
        return whole, commits

    def _agreed(self, state: State, segment: Segment, own: Sequence[bytes], hint: Hint | None) -> State:
        """Return a checkpoint's state, with its version's time. Raises `Corrupt` where its commits say otherwise."""
        name = LOG_FOLDER + segment.checkpoint[0].name
        for head in own:
            lines = first_lines(head)
            commit = parse_commit(state.version, lines) if lines or not head else self.read_commit(state.version)
            if commit is None:
                continue
            reason = disagreement(state, commit, whole=len(head) < HEAD_BYTES)
            if reason is not None:
                raise Corrupt(f"checkpoint {name} disagrees with {commit_name(state.version)}: {reason}")
            if has_in_commit_timestamps(state.protocol, state.metadata):
                state = replace(state, timestamp_ms=commit.timestamp_ms)
        if hint is not None and hint.version == state.version and hint.files is not None:
            files = files_in(state)
            if files is not None and files != hint.files:
                self._verify(state, name)
        return state

    def _verify(self, state: State, name: str) -> None:
        """Compare a checkpoint with the commits before it, if they are all there. Raises `Corrupt`."""
        listing = self._list(LOG_FOLDER)
        older = {version: files for version, files in listing.checkpoints.items() if version < state.version}
        try:
            replayed, _ = self._load(find_segment(Listing(listing.commits, older), state.version))
        except (Corrupt, VersionExpired):
            return
        reason = difference(state, replayed)
        if reason is not None:
            raise Corrupt(f"checkpoint {name} disagrees with the commits up to its version: {reason}")

    def _sidecars_of(self, manifest: Sequence[str]) -> Fetch:
        """Return a function that fetches a checkpoint's sidecars. If clean-up has deleted them, open the log again."""

        def fetch(names: Sequence[str]) -> Sequence[bytes]:
            try:
                return self._get_all(names)
            except Unavailable as error:
                if isinstance(error.__cause__, ObjectNotFound) and self.store.head(self.root + manifest[0]) is not None:
                    raise Corrupt(f"{error.__cause__} is missing, though checkpoint {manifest[0]} names it") from error
                self._lost()
                raise

        return fetch

    def _checkpoint_time(self, state: State) -> int:
        """Return the timestamp of a version that was loaded from its checkpoint alone: its commit still says it."""
        if not has_in_commit_timestamps(state.protocol, state.metadata):
            return 0
        commit = self.read_commit(state.version)
        return commit.timestamp_ms if commit is not None else 0

    def _get_all(self, names: Sequence[str], heads: Sequence[str] = ()) -> Sequence[bytes]:
        """Read files, of `heads` only the start."""
        ranges = [ByteRange(self.root + name, 0, HEAD_BYTES if name in heads else None) for name in names]
        try:
            return self.store.get_many(ranges)
        except ObjectNotFound as error:
            msg = f"{error} was listed but is gone: the log was cleaned up in the meantime; open the table again"
            raise Unavailable(msg) from error

    def _lost(self) -> None:
        """Take note that clean-up has deleted sidecars of a checkpoint that was read."""


def _not_found(root: str, uri: str) -> str:
    told = f"there is no table {root.rstrip('/')!r}" if root else "there is no table here"
    folder = missing_folder(uri)
    return f"{told}: there is no folder {folder}" if folder else told
