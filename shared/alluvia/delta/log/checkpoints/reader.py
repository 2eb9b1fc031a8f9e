"""Read checkpoints of every kind: from the bytes of their files to a state. Pure; the caller fetches sidecars.

The few actions that are not about files are read at once. File actions are decoded, and sidecars fetched, on demand.
Source: Delta protocol, "Checkpoints", "Sidecar Files" and "Checkpoint Schema".

Readers trust a checkpoint instead of the commits before it, so a damaged one would silently give wrong rows. Two checks
are cheap enough for every opening: it must contain the commit of its own version, and `_last_checkpoint` counts its
files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.checkpoints.writer import ADD, REMOVE
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.fields import Json, whole
from alluvia.delta.log.files.action_rows import ActionRows, FileRows, LogRows, check_fields, check_partitions
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.parquet import KEYS, ActionFile, bodies
from alluvia.delta.log.files.sidecars import Fetch, Sidecar, SidecarFile, SidecarRows, sidecar_rows
from alluvia.delta.log.replay import State
from alluvia.errors import Corrupt

_UNREADABLE = (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError)
_FILES: dict[str, dict[str, pa.DataType]] = {"add": ADD, "remove": REMOVE}
_PARSERS: dict[str, Callable[[Json], Any]] = {"add": AddFile.from_json, "remove": RemoveFile.from_json}
T = TypeVar("T")


class FalseCheckpoint(Corrupt):
    """A checkpoint that can be read, and says what no writer may: that there is no protocol, or another version."""


class Checkpoint:
    """A checkpoint's own files, read; those of its `sidecars` are left alone until a row of them is needed."""

    def __init__(self, version: int, files: Sequence[tuple[str, bytes]]) -> None:
        """Take the name and the bytes of each file. Raises `Corrupt`, naming the file."""
        self.version = version
        self._parts = [_open(name, data) for name, data in files]
        self._names = ", ".join(name for name, _ in files)
        self.sidecars = tuple({each.name: each for each in self._actions("sidecar", Sidecar.from_json)}.values())
        for said in self._actions("checkpointMetadata", lambda body: whole(body, "version")):
            if said != version:
                msg = f"checkpoint {self._names} is named for version {version}, but says that it holds version {said}"
                raise FalseCheckpoint(msg)

    def state(self, fetch: Fetch | None = None) -> State:
        """Return the state; `fetch` gets sidecars by name. Raises `Corrupt`, naming the file."""
        protocols = self._actions("protocol", Protocol.from_json)
        metadata = self._actions("metaData", Metadata.from_json)
        for actions, kind in ((protocols, "protocol"), (metadata, "metaData")):
            if not actions or any(each != actions[0] for each in actions):
                msg = f"checkpoint {self._names} holds {len(actions) or 'no'} {kind} action{'s' if actions else ''}"
                raise FalseCheckpoint(msg)
        if metadata[0].partition_columns:
            for part in self._parts:
                check_partitions(part.name, part.rows("add"))
        if self.sidecars and fetch is None:
            raise Corrupt(f"checkpoint {self._names} has sidecars, and nothing to fetch them with")
        txns = self._actions("txn", Txn.from_json)
        domains = self._actions("domainMetadata", DomainMetadata.from_json)
        files = [SidecarFile(each, fetch) for each in self.sidecars] if fetch is not None else []
        return State(
            self.version,
            protocols[0],
            metadata[0],
            files=ActionSet(AddFile.from_json, self._rows("add", files)),
            tombstones=ActionSet(RemoveFile.from_json, self._rows("remove", files)),
            txns={txn.app_id: txn for txn in txns},
            domains={domain.domain: domain for domain in domains if not domain.removed},
        )

    def _actions(self, kind: str, parse: Callable[[Json], T]) -> list[T]:
        actions: list[T] = []
        for part in self._parts:
            try:
                actions += [parse(row) for row in part.bodies(kind)]
            except _UNREADABLE as error:
                raise Corrupt(f"checkpoint {part.name}: {kind}: {error}") from error
        return actions

    def _rows(self, kind: str, sidecars: Sequence[SidecarFile]) -> list[LogRows[Any]]:
        own = [part.rows(kind) for part in self._parts]
        return [*(rows for rows in own if len(rows)), *sidecar_rows(sidecars, kind, _PARSERS[kind], _FILES[kind])]


def read_checkpoint(version: int, parts: Sequence[tuple[str, bytes]], fetch: Fetch | None = None) -> State:
    """Read the state that a checkpoint's files (name and bytes of each) and sidecars hold. Raises `Corrupt`."""
    return Checkpoint(version, parts).state(fetch)


class _Part(ABC):
    name: str

    @abstractmethod
    def bodies(self, kind: str) -> Sequence[Json]:
        """Return the bodies of all actions of a kind."""

    @abstractmethod
    def rows(self, kind: str) -> LogRows[Any]:
        """Return the file actions of a kind."""


class _Parquet(_Part):
    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._file = ActionFile(name, data)
        self._few = self._file.few()

    def bodies(self, kind: str) -> Sequence[Json]:
        return bodies(self._few[kind])

    def rows(self, kind: str) -> LogRows[Any]:
        check_fields(self._file, kind, _FILES[kind])
        return FileRows(self._file, kind, _PARSERS[kind])


class _Manifest(_Part):
    """A v2 checkpoint in JSON: an action a line, as in a commit."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._bodies: dict[str, list[Json]] = {kind: [] for kind in KEYS}
        try:
            for line in data.splitlines():
                if line and not line.isspace():
                    for kind, body in orjson.loads(line).items():
                        if body is not None and kind in self._bodies:
                            self._bodies[kind].append(body)
            self._files = {kind: [parse(body) for body in self._bodies[kind]] for kind, parse in _PARSERS.items()}
        except _UNREADABLE as error:
            raise Corrupt(f"checkpoint {name} is not readable JSON: {error}") from error

    def bodies(self, kind: str) -> Sequence[Json]:
        return self._bodies[kind]

    def rows(self, kind: str) -> LogRows[Any]:
        return ActionRows(self._files[kind])


def _open(name: str, data: bytes) -> _Part:
    return _Manifest(name, data) if name.endswith(".json") else _Parquet(name, data)


HEAD_BYTES = 1 << 18
"""So much of a commit is read, since one of many files may be bigger than the checkpoint."""
ADDS_MAX = 100
"""So many adds and removes of a commit are looked up."""


def disagreement(state: State, commit: CommitActions, *, whole: bool = True) -> str | None:
    """Return what a checkpoint's state lacks of its own version's commit, or contradicts in it; None if they agree.

    The removes of a truncated commit prove nothing: further on, it may add the same file.
    """
    if commit.protocol is not None and not same_protocol(commit.protocol, state.protocol):
        return "it holds another protocol"
    if commit.metadata is not None and metadata_difference(commit.metadata, state.metadata) is not None:
        return "it holds another metaData"
    if files_in(state) is None:
        return None
    added = {add.key for add in commit.adds}
    adds, removes = commit.adds[:ADDS_MAX], commit.removes[:ADDS_MAX] if whole else ()
    held = state.files.held([*(add.key for add in adds), *(remove.key for remove in removes)])
    for add in adds:
        if add.key not in held:
            return f"it lacks data file {add.path}, which that version added"
    for remove in removes:
        if remove.key not in added and remove.key in held:
            return f"it holds data file {remove.path}, which that version removed"
    for txn in commit.txns:
        known = state.txns.get(txn.app_id)
        if known is not None and known.version != txn.version:
            return f"it holds version {known.version} of transaction {txn.app_id!r}, not {txn.version}"
    return None


def files_in(state: State) -> int | None:
    """Return the number of data files of a checkpoint's state; None if sidecars would have to be opened for that."""
    if any(isinstance(part, SidecarRows) for part in state.files.parts):
        return None
    return len(state.files)


def difference(state: State, replayed: State) -> str | None:
    """Return how the data files of a checkpoint differ from those that its commits make; None if they do not."""
    ours, theirs = {file.key: file.path for file in state.files}, {file.key: file.path for file in replayed.files}
    for key, path in theirs.items():
        if key not in ours:
            return f"it lacks data file {path}"
    return next(
        (f"it holds data file {path}, which they do not" for key, path in ours.items() if key not in theirs), None
    )


def first_lines(head: bytes) -> bytes:
    """Return the complete lines in the first `HEAD_BYTES` of a commit; nothing if even its first line is longer."""
    return head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1]


def same_protocol(ours: Protocol, theirs: Protocol) -> bool:
    """Whether two protocols demand the same; features have no order."""
    return _demands(ours) == _demands(theirs)


def _demands(protocol: Protocol) -> tuple[int, int, set[str], set[str]]:
    readers, writers = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    return protocol.min_reader_version, protocol.min_writer_version, readers, writers


def metadata_difference(ours: Metadata, theirs: Metadata) -> str | None:
    """Return what a checkpoint's metadata says differently, None if nothing; JSON may be written in any order."""
    if ours.id != theirs.id:
        return "table id"
    if _parsed(ours.schema_string) != _parsed(theirs.schema_string):
        return "schema"
    if ours.partition_columns != theirs.partition_columns:
        return "list of partition columns"
    if dict(ours.configuration) != dict(theirs.configuration):
        return "set of properties"
    return None


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return text
