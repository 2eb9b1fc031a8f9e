"""Compare a checkpoint with the state that the commits up to it produce, and a sidecar with its action. Pure.

Source: Delta protocol, "Checkpoints": all live files, the tombstones that have not expired, the newest of everything
else. Statistics may be missing, or be stored as a struct. "Sidecar File Information"; the facts in the tags of a
sidecar's action are this library's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.checkpoints.reader import metadata_difference, same_protocol
from alluvia.delta.log.checkpoints.writer import STRUCT
from alluvia.delta.log.files.action_rows import FileRows
from alluvia.delta.log.files.columns import statistics_texts
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.parquet import ActionFile
from alluvia.delta.log.files.sidecars import Sidecar, SidecarFacts
from alluvia.delta.log.replay import State
from alluvia.delta.schema.names import find
from alluvia.lazy_dataclasses import dataclass
from alluvia.verify.leaves import Leaf, excludes
from alluvia.verify.replaying import Replay
from alluvia.verify.report import Findings
from alluvia.verify.statistics_checks import bounds, contradiction, read_statistics

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True)
class Subject:
    """A checkpoint under check. `tombstones_after_ms`: none that was deleted later may be missing.

    `leaves` are the table's stored columns, none if the schema cannot be read. `structs`: whether statistics that it
    holds as structs are checked too.
    """

    name: str
    version: int
    state: State
    tombstones_after_ms: int
    leaves: Sequence[Leaf]
    structs: bool = True


@dataclass(frozen=True, slots=True)
class Lacking:
    """A checkpoint that lacks tombstones: its `version`, the finding's `message`, and one of the files.

    That matters only where a version that can be read may be based on it: an erasure gives versions that are kept
    checkpoints of their own, without tombstones.
    """

    version: int
    message: str
    file: str


def compare(subject: Subject, truth: Replay, findings: Findings) -> Lacking | None:
    """Report each way in which a checkpoint differs from the truth, once, with an example. Raises `Corrupt`.

    Returns what tombstones it lacks, which is not reported.
    """
    return _Comparison(subject, truth, findings).run()


class _Comparison:
    def __init__(self, subject: Subject, truth: Replay, findings: Findings) -> None:
        self._subject = subject
        self._state = subject.state
        self._truth = truth
        self._findings = findings

    def run(self) -> Lacking | None:
        self._compare_table()
        self._compare_files()
        lacking = self._compare_tombstones()
        self._compare_rest()
        return lacking

    def _report(self, kind: str, what: str, file: str | None = None) -> None:
        subject = self._subject
        self._findings.add(kind, f"checkpoint {subject.name} {what}", version=subject.version, file=file)

    def _compare_table(self) -> None:
        protocol, metadata = self._truth.protocol, self._truth.metadata
        if protocol is not None and not same_protocol(protocol, self._state.protocol):
            self._report("checkpoint-protocol-differs", "has a different protocol from the commits up to it")
        if metadata is not None:
            what = metadata_difference(metadata, self._state.metadata)
            if what is not None:
                self._report("checkpoint-metadata-differs", f"has a different {what} from the commits up to it")

    def _compare_files(self) -> None:
        seen: set[str] = set()
        extra: list[str] = []
        different: list[tuple[str, str]] = []
        lying: list[tuple[str, str]] = []
        files = self._state.files
        pairs = with_structs(files) if self._subject.structs else ((file, None) for file in files)
        for file, struct in pairs:
            known = self._truth.files.get(file.key)
            if known is None or file.key in seen:
                extra.append(file.path)
                continue
            seen.add(file.key)
            what = file_difference(known, file)
            if what is not None:
                different.append((file.path, what))
            wrong = self._statistics_difference(known, (file.stats, struct))
            if wrong is not None:
                lying.append((file.path, wrong))
        lacking = [file.path for key, file in self._truth.files.items() if key not in seen]
        if lacking:
            what = f"lacks {_counted(lacking)} of its version, such as {lacking[0]}"
            self._report("checkpoint-lacks-file", what, lacking[0])
        if extra:
            what = f"holds {_counted(extra)} that its version does not have, such as {extra[0]}"
            self._report("checkpoint-extra-file", what, extra[0])
        for kind, differing in (("checkpoint-file-differs", different), ("checkpoint-statistics-differ", lying)):
            if differing:
                path, what = differing[0]
                what = f"says other things of {_counted(differing)} than the commits do: of {path}, {what}"
                self._report(kind, what, path)

    def _statistics_difference(self, known: AddFile, texts: Iterable[str | None]) -> str | None:
        ours = None
        for text in texts:
            if text is None or text == known.stats:
                continue
            leaves = self._subject.leaves
            ours = read_statistics(known.stats, leaves) if ours is None else ours
            theirs = read_statistics(text, leaves)
            if theirs is None:
                return "its statistics cannot be read"
            wrong = contradiction(ours or {}, theirs, leaves)
            if wrong is not None:
                return wrong
        return None

    def _compare_tombstones(self) -> Lacking | None:
        seen: set[str] = set()
        extra: list[str] = []
        for file in self._state.tombstones:
            seen.add(file.key)
            if file.key in self._truth.files:
                what = f"holds data file {file.path} as removed, though it is live"
                self._report("file-live-and-removed", what, file.path)
            elif file.key not in self._truth.tombstones and self._truth.base < 0:
                extra.append(file.path)
        lacking = [
            file.path
            for key, file in self._truth.tombstones.items()
            if key not in seen and file.deletion_timestamp > self._subject.tombstones_after_ms
        ]
        if extra:
            what = f"holds {_counted(extra)} as removed that no commit removed, such as {extra[0]}"
            self._report("checkpoint-extra-tombstone", what, extra[0])
        if not lacking:
            return None
        what = f"lacks the tombstones of {_counted(lacking)} within the retention, such as {lacking[0]}"
        return Lacking(self._subject.version, f"checkpoint {self._subject.name} {what}", lacking[0])

    def _compare_rest(self) -> None:
        state, truth = self._state, self._truth
        may_drop = truth.metadata is not None and TRANSACTION_RETENTION in truth.metadata.configuration
        for app_id in sorted({*state.txns, *truth.txns}):
            ours, theirs = truth.txns.get(app_id), state.txns.get(app_id)
            if theirs is None and may_drop:
                continue
            if ours is None or theirs is None or ours.version != theirs.version:
                said = "no" if theirs is None else f"version {theirs.version} of"
                known = "none" if ours is None else ours.version
                what = f"holds {said} transaction {app_id!r}, the commits up to it say {known}"
                self._report("checkpoint-transactions-differ", what)
        for name in sorted({*state.domains, *truth.domains}):
            domains = [each.domains.get(name) for each in (state, truth)]
            if None in domains or domains[0].configuration != domains[1].configuration:  # type: ignore[union-attr]
                what = f"has another metadata domain {name!r} than the commits up to it"
                self._report("checkpoint-domains-differ", what)


def with_structs(files: ActionSet[AddFile]) -> Iterator[tuple[AddFile, str | None]]:
    """Yield a checkpoint's adds, each with the JSON text of its struct statistics (None where it has none)."""
    for part in files.parts:
        kind = part.type_of((STRUCT,))
        texts: Iterator[str | None] = iter(())
        if kind is not None:
            batches = part.structs({STRUCT: kind})
            texts = (text for batch in batches for text in statistics_texts(batch.field(0)))
        for file in part.actions():
            yield file, next(texts, None)


def file_difference(ours: AddFile, theirs: AddFile) -> str | None:
    """Return what a checkpoint says differently of a file, statistics aside; None if nothing."""
    if ours.size != theirs.size:
        return f"its size is {theirs.size}, not {ours.size}"
    if ours.modification_time != theirs.modification_time:
        return f"its modificationTime is {theirs.modification_time}, not {ours.modification_time}"
    if _values(ours) != _values(theirs):
        return f"its partition values are {dict(theirs.partition_values)}, not {dict(ours.partition_values)}"
    if _vector(ours) != _vector(theirs):
        return "its deletion vector is another"
    return None


def _values(file: AddFile) -> dict[str, str]:
    """Return partition values without nulls, of which the empty text is one."""
    return {name: text for name, text in file.partition_values.items() if text}


def _vector(file: AddFile | RemoveFile) -> dict[str, Any]:
    names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    return {name: (file.deletion_vector or {}).get(name) for name in names}


def _counted(files: Sequence[object]) -> str:
    return f"{len(files)} data file{'s' if len(files) > 1 else ''}"


def wrong_facts(sidecar: Sidecar, data: bytes, leaves: Sequence[Leaf]) -> str | None:
    """Return what its maker recorded of a sidecar that is not so; None if all is. Raises `Corrupt`.

    Readers skip sidecars by these facts, so a wrong one hides files. `leaves` are the table's stored columns.
    """
    facts = SidecarFacts.from_tags(sidecar.tags)
    file = ActionFile(sidecar.name, data)
    adds: FileRows[AddFile] = FileRows(file, "add", AddFile.from_json)
    removes: FileRows[RemoveFile] = FileRows(file, "remove", RemoveFile.from_json)
    if facts is None:
        return None
    rows, others = (adds, removes) if facts.kind == "add" else (removes, adds)
    if facts.kind not in ("add", "remove") or len(others):
        return f"it is said to hold nothing but {facts.kind} actions"
    if facts.rows != len(rows):
        return f"it is said to hold {facts.rows} files, and holds {len(rows)}"
    if len(rows):
        keys = pc.min_max(rows.keys)
        if (facts.first_key, facts.last_key) != (keys["min"].as_py(), keys["max"].as_py()):
            return f"its files are said to go from {facts.first_key} to {facts.last_key}"
    if facts.size is not None and facts.size != rows.size("size"):
        return f"its files are said to have {facts.size} bytes, and have {rows.size('size')}"
    times: Any = rows.column(("deletionTimestamp",)) if facts.kind == "remove" else None
    if facts.deleted_ms_max is not None and times is not None and facts.deleted_ms_max != pc.max(times).as_py():
        return f"its last file is said to have been removed at {facts.deleted_ms_max}"
    return None if facts.kind != "add" else _wrong_statistics(facts.statistics, adds, leaves)


def _wrong_statistics(text: str | None, adds: FileRows[AddFile], leaves: Sequence[Leaf]) -> str | None:
    """Return what the statistics of all files together leave out of those of one."""
    together = read_statistics(text, leaves)
    if together is None:
        return "the statistics of its files together cannot be read"
    limits = [(leaf, *bounds(together, leaf), find(together.get("nullCount"), leaf.physical)) for leaf in leaves]
    known = [limit for limit in limits if limit[1:] != (None, None, None)]
    for file in adds.actions() if known else ():
        statistics = read_statistics(file.stats, leaves) or {}
        for leaf, low, high, nulls in known:
            least, greatest = bounds(statistics, leaf)
            if least is not None and greatest is not None and excludes(low, high, least, greatest, leaf.kind):
                return f"the values of {leaf.name} in {file.path} lie beyond those of its files together"
            if nulls == 0 and find(statistics.get("nullCount"), leaf.physical):
                return f"{leaf.name} has nulls in {file.path}, and none in its files together"
    return None
