"""Reading a log in order, checking commits and checkpoints on the way. The I/O of verifying a log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from alluvia.delta.log.actions import CdcFile, Metadata, Protocol, RemoveFile
from alluvia.delta.log.checkpoints.reader import Checkpoint as OpenCheckpoint
from alluvia.delta.log.checkpoints.reader import disagreement
from alluvia.delta.log.commit import CommitActions, has_in_commit_timestamps, parse_commit
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.log.files.sidecars import Sidecar
from alluvia.delta.log.paths import LOG_FOLDER, commit_name
from alluvia.delta.log.replay import State
from alluvia.delta.properties import read_properties
from alluvia.delta.schema.column_mapping import MODE
from alluvia.errors import Corrupt, ObjectNotFound, Unavailable, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import ByteRange, Store
from alluvia.verify.checkpoint_checks import Lacking, Subject, compare, wrong_facts
from alluvia.verify.commit_checks import CommitChecks
from alluvia.verify.leaves import Leaf, stored_leaves
from alluvia.verify.objects import Checkpoint, Objects
from alluvia.verify.replaying import Replay, from_checkpoint
from alluvia.verify.report import Findings
from alluvia.verify.window_checks import WindowRecord

COMMITS_AHEAD = 64
AHEAD_BYTES = 16 << 20
SIDECARS_KEPT_BYTES = 64 << 20
_RETENTION_MS = 7 * 24 * 60 * 60 * 1000
_SLACK_MS = 60 * 60 * 1000
_UNREADABLE = (Corrupt, *UNREADABLE, ValueError, KeyError, TypeError, AttributeError)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Change:
    """A change-data file that a commit names."""

    version: int
    timestamp_ms: int
    file: CdcFile


@dataclass(slots=True)
class Walk:
    """The result of a walk through a log.

    `oldest` and `newest` are the lowest and the highest version that the log makes, None for none. `replay` is that
    newest state; where later commits are missing or broken, it is what those that can be read make of it. `adds` has
    the number of live files of each checkpoint that could be read. `changes` are the change-data files that are not
    where they should be.
    """

    replay: Replay | None = None
    oldest: int | None = None
    newest: int | None = None
    adds: dict[int, set[int]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    window: WindowRecord = field(default_factory=WindowRecord)
    metadata: dict[int, Metadata] = field(default_factory=dict)
    """What checkpoints that could be read have of it, by version."""
    sidecars: set[str] = field(default_factory=set)
    """Those that checkpoints name."""
    lacking: list[Lacking] = field(default_factory=list)
    """Checkpoints that lack tombstones."""


def note_absent(removes: Sequence[RemoveFile], version: int, where: str, findings: Findings) -> None:
    """Report removes of files that were not in the table."""
    for remove in removes:
        msg = f"{where} removes data file {remove.path}, which was not in the table"
        findings.add("remove-of-absent-file", msg, version=version, file=remove.path)


class LogWalk:
    """One walk through the log that some objects make, of the table at `root`.

    Struct statistics in checkpoints take long to compare, and are compared only from a version on.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        objects: Objects,
        findings: Findings,
        now_ms: int,
        progress: Progress,
        structs_from: int = 0,
    ) -> None:
        self._store = store
        self._root = root
        self._objects = objects
        self._findings = findings
        self._progress = progress
        self._structs_from = structs_from
        self._checks = CommitChecks(findings, now_ms)
        self._broken = False
        self._own: CommitActions | None = None
        self._leaves: tuple[Leaf, ...] = ()
        self._schema: tuple[str, tuple[str, ...], str | None] | None = None
        self._sidecars: OrderedDict[str, bytes] = OrderedDict()
        self._checked: set[tuple[str, int]] = set()
        self._result = Walk(Replay() if 0 in objects.commits else None)

    def run(self) -> Walk:
        """Walk, and report on the way. Raises `Unavailable` where the store does not answer."""
        objects = self._objects
        total = len(objects.commits) + len(objects.checkpoints)
        done = 0
        bodies = self._bodies(sorted(objects.commits))
        for version in sorted({*objects.commits, *objects.checkpoints}):
            if version in objects.commits:
                self._take_commit(version, next(bodies))
                done += 1
                self._progress("log", done, total)
            if version in objects.checkpoints:
                for checkpoint in objects.checkpoints[version]:
                    self._take_checkpoint(version, checkpoint)
                done += 1
                self._progress("log", done, total)
            self._note_version(version)
        if self._result.replay is not None and self._result.replay.version < 0:
            self._result.replay = None
        return self._result

    def _note_version(self, version: int) -> None:
        result = self._result
        if result.replay is not None and result.replay.version == version and not self._broken:
            result.oldest = version if result.oldest is None else result.oldest
            result.newest = version

    def _take_commit(self, version: int, data: bytes) -> None:
        result = self._result
        try:
            commit = parse_commit(version, data)
        except Corrupt as error:
            self._findings.add("commit-unreadable", str(error), version=version, file=commit_name(version))
            self._broken = True
            return
        self._own = commit
        replay = result.replay
        follows = replay is not None and not self._broken and replay.version == version - 1
        self._checks.check(commit, data, timed=self._timed(commit, replay if follows else None))
        self._take_events(commit)
        self._look_for_changes(commit)
        if commit.metadata is not None:
            protocol = commit.protocol or (None if replay is None else replay.protocol)
            self._read_schema(protocol, commit.metadata, version)
        self._broken = not follows
        if replay is None:
            return
        complete = follows and replay.base < 0
        strange = replay.take(commit)
        if complete:
            note_absent(strange, version, commit_name(version), self._findings)
        if version == 0:
            self._check_first(replay)

    def _check_first(self, replay: Replay) -> None:
        for kind, needed in (("protocol", replay.protocol), ("metadata", replay.metadata)):
            if needed is None:
                action = "metaData" if kind == "metadata" else kind
                msg = f"{commit_name(0)} holds no {action} action, with which every table begins"
                self._findings.add(f"{kind}-missing", msg, version=0)

    def _timed(self, commit: CommitActions, replay: Replay | None) -> bool:
        metadata = commit.metadata or (None if replay is None else replay.metadata)
        protocol = commit.protocol or (None if replay is None else replay.protocol)
        if metadata is None or protocol is None:
            return "inCommitTimestamp" in commit.info
        return has_in_commit_timestamps(protocol, metadata)

    def _take_events(self, commit: CommitActions) -> None:
        try:
            self._result.window.take(commit)
        except Corrupt as error:
            self._findings.add("event-ids-unreadable", str(error), version=commit.version)

    def _look_for_changes(self, commit: CommitActions) -> None:
        for file in commit.cdc:
            info = self._objects.get(file.path)
            if info is None or info.size != file.size:
                time_ms = commit.timestamp_ms or self._objects.commits[commit.version].modified_ms
                self._result.changes.append(Change(commit.version, time_ms, file))

    def _read_schema(self, protocol: Protocol | None, metadata: Metadata, version: int) -> None:
        identity = (metadata.schema_string, metadata.partition_columns, metadata.configuration.get(MODE))
        if identity == self._schema:
            return
        self._schema, self._leaves = identity, ()
        try:
            self._leaves = stored_leaves(protocol, metadata)
        except Corrupt as error:
            self._findings.add("schema-unreadable", f"version {version}: {error}", version=version)
        except Unsupported:
            # In the newest version this ends the verification; in an older one, only its columns are not checked.
            self._leaves = ()

    def _take_checkpoint(self, version: int, checkpoint: Checkpoint) -> None:
        result = self._result
        name = LOG_FOLDER + checkpoint[0].name
        try:
            state = self._open(version, checkpoint)
            if state is None:
                return
            self._read_schema(state.protocol, state.metadata, version)
            count = len(state.files)
            replay = result.replay
            if replay is None or self._broken or replay.version != version:
                self._compare_with_own(state, name)
                result.replay = from_checkpoint(state, state.files, state.tombstones)
                self._broken = False
            else:
                after_ms = self._objects.log[name].modified_ms - self._retention_ms(replay) + _SLACK_MS
                structs = version >= self._structs_from
                subject = Subject(name, version, state, after_ms, self._leaves, structs)
                lacking = compare(subject, replay, self._findings)
                self._result.lacking += [] if lacking is None else [lacking]
        except _UNREADABLE as error:
            msg = str(error) if isinstance(error, Corrupt) else f"checkpoint {name} cannot be read: {error}"
            self._findings.add("checkpoint-unreadable", msg, version=version, file=name)
            return
        result.adds.setdefault(version, set()).add(count)
        result.metadata[version] = state.metadata

    def _compare_with_own(self, state: State, name: str) -> None:
        """Compare a checkpoint with the commit of its own version, if nothing before it is left to compare it with."""
        own = self._own
        reason = None if own is None or own.version != state.version else disagreement(state, own)
        if reason is not None:
            msg = f"checkpoint {name} contradicts {commit_name(state.version)}: {reason}"
            self._findings.add("checkpoint-contradicts-commit", msg, version=state.version, file=name)

    def _retention_ms(self, replay: Replay) -> int:
        try:
            configuration = {} if replay.metadata is None else replay.metadata.configuration
            return read_properties(configuration).file_retention_ms
        except Corrupt:
            return _RETENTION_MS

    def _open(self, version: int, checkpoint: Checkpoint) -> State | None:
        """Read a checkpoint and check its sidecars; None where one of them is missing or broken."""
        names = [LOG_FOLDER + file.name for file in checkpoint]
        opened = OpenCheckpoint(version, list(zip(names, self._get_all(names), strict=True)))
        sound = [self._check_sidecar(each, version, names[0]) for each in opened.sidecars]
        return opened.state(self._fetch_sidecars) if all(sound) else None

    def _check_sidecar(self, sidecar: Sidecar, version: int, name: str) -> bool:
        info = self._objects.sidecars.get(sidecar.name) or self._store.head(self._root + sidecar.name)
        self._result.sidecars.add(sidecar.name)
        if info is None:
            msg = f"sidecar {sidecar.name} is missing, though checkpoint {name} names it"
            self._findings.add("sidecar-missing", msg, version=version, file=sidecar.name)
            return False
        if info.size != sidecar.size:
            msg = f"sidecar {sidecar.name} has {info.size} bytes, not the {sidecar.size} that checkpoint {name} says"
            self._findings.add("sidecar-size-wrong", msg, version=version, file=sidecar.name)
        identity = (sidecar.name, hash(frozenset(sidecar.tags.items())))
        if identity in self._checked:
            return True
        try:
            wrong = wrong_facts(sidecar, self._fetch_sidecars([sidecar.name])[0], self._leaves)
        except _UNREADABLE as error:
            msg = str(error) if isinstance(error, Corrupt) else f"sidecar {sidecar.name} cannot be read: {error}"
            self._findings.add("sidecar-unreadable", msg, version=version, file=sidecar.name)
            return False
        if wrong is not None:
            msg = f"sidecar {sidecar.name} is not what checkpoint {name} says: {wrong}"
            self._findings.add("sidecar-facts-wrong", msg, version=version, file=sidecar.name)
        self._checked.add(identity)
        return True

    def _fetch_sidecars(self, names: Sequence[str]) -> list[bytes]:
        wanted = [name for name in names if name not in self._sidecars]
        fetched = dict(zip(wanted, self._get_all(wanted), strict=True))
        sidecars = [fetched[name] if name in fetched else self._sidecars[name] for name in names]
        for name, data in zip(names, sidecars, strict=True):
            self._sidecars[name] = data
            self._sidecars.move_to_end(name)
        while len(self._sidecars) > 1 and sum(map(len, self._sidecars.values())) > SIDECARS_KEPT_BYTES:
            self._sidecars.popitem(last=False)
        return sidecars

    def _bodies(self, versions: Sequence[int]) -> Iterator[bytes]:
        """Yield the commits' bytes, some of them ahead, as many as fit into a little memory."""
        start = 0
        while start < len(versions):
            end, size = start, 0
            while end < len(versions) and end - start < COMMITS_AHEAD and (end == start or size < AHEAD_BYTES):
                size += self._objects.commits[versions[end]].size
                end += 1
            yield from self._get_all([commit_name(version) for version in versions[start:end]])
            start = end

    def _get_all(self, names: Sequence[str]) -> Sequence[bytes]:
        try:
            return self._store.get_many(ByteRange(self._root + name) for name in names)
        except ObjectNotFound as error:
            msg = f"{error} was listed but is gone: the log was cleaned up in the meantime; verify the table again"
            raise Unavailable(msg) from error
