"""Search every object of a table for rows that are to be erased, and for what shows their values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from alluvia.clock import datetime_of
from alluvia.commit.commit_offers import OFFERS, decode_offer
from alluvia.commit.commit_records import DECISIONS
from alluvia.commit.event_window.index import WINDOW_FOLDER
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import pending, placed_in
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import parse_commit
from alluvia.delta.log.paths import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    CheckpointFile,
    CommitFile,
    parse_name,
)
from alluvia.errors import Corrupt, Unsupported
from alluvia.operations.erasure.erase_files import mentions
from alluvia.operations.erasure.erase_log import (
    BOUNDS,
    CONDITION,
    PATH,
    TEXT,
    FileEntry,
    LogView,
    checkpoint_files,
    checkpoint_texts,
    commit_files,
    commit_infos,
    commit_metadata,
    values_of,
)
from alluvia.operations.erasure.erase_matching import Matching, names_with, word_pattern
from alluvia.operations.erasure.erase_metadata import owner_texts
from alluvia.operations.erasure.erase_report import (
    CHANGES,
    CHECKPOINT,
    COMMIT,
    DATA,
    NO_WORDS,
    OTHER,
    SIDECAR,
    VECTORS,
    WINDOWS,
    KnownTraces,
    Trace,
    Traces,
    read_if_there,
    read_present,
    unclear,
)
from alluvia.operations.erasure.erase_work import EraseWork, FileToJudge
from alluvia.operations.reading.change_files import CHANGE_FOLDER
from alluvia.operations.retention.path_hashes import key_hash
from alluvia.operations.retention.referenced_files import KeptFiles
from alluvia.operations.retention.vacuum_cutoffs import LOG_AGE_MS_MIN, ORPHAN_AGE_MS_MIN
from alluvia.operations.retention.vacuum_keys import needed
from alluvia.progress import report
from alluvia.store import ObjectInfo
from alluvia.table_names import REJECTS

COMMITS_AT_ONCE = 256
_VECTOR = re.compile(r"(^|/)deletion_vector_[^/]*\.bin$")


class Survey:
    """Searches of one table, which remember what they know of objects that never change."""

    def __init__(self, handle: TableHandle, work: EraseWork, *, skips_rejects: bool) -> None:
        self._handle = handle
        self._work = work
        self._skipped = f"{REJECTS}/" if skips_rejects else None
        self._known = KnownTraces()

    def look(
        self,
        matching: Matching,
        *,
        live: bool = False,
        thorough: bool = False,
        kept: KeptFiles | None = None,
        checkpoints: Collection[str] = (),
    ) -> Traces:
        """Search the table's objects. The matching's snapshot is the oldest version that must stay readable.

        So must the versions that are `kept`, whose own `checkpoints` stay, by their keys below the table's root.

        Files of that version and of later commits are kept, and searched only if `live` ones are wanted too.
        A `thorough` search finds each checkpoint with bounds of a file that is not kept and can have matched, whatever
        they show.
        """
        search = _Search(self._handle, self._work, matching, self._known, live=live, thorough=thorough)
        search.spare(kept, checkpoints)
        for info in self._listed():
            name = info.key[len(self._handle.root) :]
            if self._skipped is None or not name.startswith(self._skipped):
                search.take(name, info)
        search.finish()
        return search.found

    def _listed(self) -> Iterator[ObjectInfo]:
        for page in self._work.objects.pages(None):
            yield from page.infos()


class _Search:
    """One search: objects are taken as they are listed, data files are read at the end."""

    def __init__(
        self,
        handle: TableHandle,
        work: EraseWork,
        matching: Matching,
        known: KnownTraces,
        *,
        live: bool,
        thorough: bool,
    ) -> None:
        self._handle = handle
        self._work = work
        self._matching = matching
        self._snapshot = snapshot = matching.snapshot
        self._known = known
        self._live = live
        self._thorough = thorough
        self._now_ms = handle.clock.now_ms()
        base = needed(snapshot)
        self._kept = set(base.live.to_pylist())
        self._standing = {claim.domain for claim in pending(snapshot.state.domains)}
        self._known.named.update(base.dead.to_pylist())
        self._logs = LogView(matching, self._keeps, self._standing)
        self.found = Traces(self._logs)
        self._checkpoints: frozenset[str] = frozenset()
        self._log: list[tuple[str, ObjectInfo]] = []
        self._rows: list[tuple[str, str, ObjectInfo]] = []
        self._word = word_pattern(matching.words)

    def spare(self, kept: KeptFiles | None, checkpoints: Collection[str]) -> None:
        """Leave what keepers need."""
        if kept is not None:
            self._kept.update(kept.live.to_pylist())
        self._checkpoints = frozenset(checkpoints)

    def take(self, name: str, info: ObjectInfo) -> None:
        """Take an object, with its name below the table's root."""
        if name.startswith(LOG_FOLDER):
            self._log.append((name, info))
        elif name.startswith(f"{REJECTS}/"):  # of a table that was dropped
            self._other(OTHER, info)
        elif name.startswith(CHANGE_FOLDER):
            self._rows.append((CHANGES, name, info))
        elif _VECTOR.search(name):
            self._rows.append((VECTORS, name, info))
        elif key_hash(info.key) in self._kept or name.endswith(".parquet"):
            self._rows.append((DATA, name, info))
        elif name.startswith(OFFERS):
            self._offer(info)
        else:
            self._other(WINDOWS if name.startswith(WINDOW_FOLDER) else OTHER, info)

    def finish(self) -> None:
        """Search the log, then data files."""
        commits = [(version, info) for name, info in self._log if (version := _version(name)) is not None]
        self.found.commits = [info for _, info in commits]
        self._keep_later(commits)
        for at in range(0, len(commits), COMMITS_AT_ONCE):
            report(f"searching the log of {self._handle.name}", at, len(commits), "commits")
            self._commits([info for _, info in commits[at : at + COMMITS_AT_ONCE]])
        for name, info in self._log:
            if _version(name) is None:
                self._log_file(name, info)
        self._properties()
        self._data()

    def _properties(self) -> None:
        """Find texts of the table's owners and writers that repeat a value; only they can change them."""
        shows = self._logs.shows_text
        whys = [
            f"{place} contains a value of the condition: change it, then erase again"
            for place, text in owner_texts(self._snapshot.state.metadata.to_json())
            if shows(text)
        ]
        if any(map(shows, self._snapshot.state.txns)):
            whys.append("an application id (txn) contains a value of the condition")
        for why in (*whys, *names_with(self._handle.name, self._snapshot, self._matching.name_words)):
            self.found.traces.append(Trace(OTHER, self._handle.root + LOG_FOLDER, why, removable=False))

    def _keep_later(self, commits: Sequence[tuple[int, ObjectInfo]]) -> None:
        """Keep what commits after the oldest readable version add, or claim to add."""
        later = {info: version for version, info in commits if version > self._snapshot.version}
        for info, data in read_present(self._handle.store, list(later)):
            commit = parse_commit(later[info], data)
            claims = placed_in(commit)
            self._standing.update(claim.domain for claim in claims)
            for each in (commit, *(claim.intended(commit.version) for claim in claims)):
                if each.metadata is not None:
                    self._logs.keep_texts(each.metadata)
                paths = [*(add.path for add in each.adds), *(file.path for file in each.cdc)]
                self._kept.update(key_hash(self._snapshot.locate(path)) for path in paths)

    def _keeps(self, path: str) -> bool:
        try:
            return key_hash(self._snapshot.locate(path)) in self._kept
        except Unsupported:  # it lies outside the lake, where nothing is erased
            return True

    def _commits(self, infos: Sequence[ObjectInfo]) -> None:
        for info in infos:
            self.found.count(COMMIT, info.size)
        unknown = [info for info in infos if info not in self._known.clean]
        present = read_present(self._handle.store, unknown)
        entries = [list(commit_files(data)) for _, data in present]
        shown = iter(self._logs.shown(list(chain.from_iterable(entries))))
        for (info, data), files in zip(present, entries, strict=True):
            reasons = {next(shown) for _ in files} - {None}
            if any(map(self._logs.shows_condition, commit_infos(data))):
                reasons.add(CONDITION)
            metadata = list(commit_metadata(data))
            if any(map(self._logs.shows_replaced, metadata)):
                reasons.add(TEXT)
            self._remember(files)
            if not reasons and not metadata:
                self._known.clean.add(info)
            elif reasons == {PATH}:
                self._path_trace(COMMIT, info)
            elif reasons:
                self.found.traces.append(Trace(COMMIT, info.key, _why(reasons)))

    def _log_file(self, name: str, info: ObjectInfo) -> None:
        """Search a checkpoint, one of its sidecars, or a file that other writers put into the log."""
        kind = SIDECAR if name.startswith(SIDECAR_FOLDER) else CHECKPOINT if ".checkpoint." in name else OTHER
        if kind == OTHER and not name.endswith(".compacted.json"):
            self._other(OTHER, info, older=name.endswith(".crc"))
            return
        data = read_if_there(self._handle.store, info.key)
        if data is None:
            return
        self.found.count(kind, info.size)
        text = data if name.endswith(".json") else checkpoint_texts(name, data)
        files = [*commit_files(text), *(() if name.endswith(".json") else checkpoint_files(name, data))]
        self._remember(files)
        reasons = {*self._logs.shown(files)} - {None}
        if any(map(self._logs.shows_condition, commit_infos(text))):
            reasons.add(CONDITION)
        if any(map(self._logs.shows_replaced, commit_metadata(text))):
            reasons.add(TEXT)
        if self._thorough and self._logs.may_show(files):
            reasons.add(BOUNDS)
        if reasons - {PATH}:
            self.found.traces.append(Trace(kind, info.key, _why(reasons), removable=self._may_go(name)))
        elif reasons:
            self._path_trace(kind, info)

    def _may_go(self, name: str) -> bool:
        """Whether no readable version needs a file of the log; a checkpoint that holds a claim may be the oldest's."""
        file = parse_name(name.removeprefix(LOG_FOLDER))
        if name in self._checkpoints:
            return False
        return not isinstance(file, CheckpointFile) or file.version < self._snapshot.version

    def _path_trace(self, kind: str, info: ObjectInfo) -> None:
        """Note what only the log's own clean-up can remove: other processes may be about to read it."""
        settings = self._snapshot.settings
        kept_ms = max(settings.log_retention_ms, settings.file_retention_ms + LOG_AGE_MS_MIN, LOG_AGE_MS_MIN)
        until = datetime_of(info.modified_ms + kept_ms)
        self.found.traces.append(Trace(kind, info.key, _WHY[PATH], until, removable=False))

    def _remember(self, files: Sequence[FileEntry]) -> None:
        for file in files:
            with suppress(Unsupported):  # of a file outside the lake nothing is asked
                self._known.named.add(key_hash(self._snapshot.locate(file.path)))
        if self._logs.needs_values:
            self._known.values.update((file.path, values_of(file)) for file in files)

    def _other(self, kind: str, info: ObjectInfo, *, older: bool = False) -> None:
        self.found.count(kind, info.size)
        name = info.key[len(self._handle.root) :]
        known = name.startswith((DECISIONS, _DROPPED)) or name == LAST_CHECKPOINT  # names of tables, versions and sizes
        if not info.size or known or kind in (WINDOWS, VECTORS):  # hashes, and positions of rows
            return
        data = read_if_there(self._handle.store, info.key)
        if data is None:
            return
        mentioned = mentions(data, self._word or _NOTHING)
        if mentioned and self._word is not None:
            self.found.traces.append(Trace(kind, info.key, "it contains a value of the condition", removable=older))
        elif mentioned is None or self._word is None:
            why = "it could not be judged: it is not a file of a table" if mentioned is None else NO_WORDS
            self.found.traces.append(Trace(kind, info.key, why, removable=False))

    def _offer(self, info: ObjectInfo) -> None:
        """Search rows on offer. It may go at any time, since its owner has them too."""
        self.found.count(OTHER, info.size)
        data = read_if_there(self._handle.store, info.key)
        if data is not None and self._offers_match(info, data):
            self.found.traces.append(Trace(OTHER, info.key, "it offers matching rows to other writers"))

    def _offers_match(self, info: ObjectInfo, data: bytes) -> bool:
        """Whether any row on offer matches. One that cannot be read, or lacks a column, counts as matching."""
        try:
            rows = decode_offer(info.key, data).rows
        except Corrupt:
            return True
        if not set(self._matching.columns) <= set(rows.column_names):
            return True
        batches = rows.select(self._matching.columns).to_batches()
        return any(self._matching.judge(batch, False).mask.true_count > 0 for batch in batches)

    def _data(self) -> None:
        wanted = []
        for kind, name, info in self._rows:
            live = key_hash(info.key) in self._kept
            if live and not self._live:
                continue
            if kind != VECTORS:
                self.found.count(kind, info.size)
            if kind == VECTORS:  # positions of rows
                self._other(kind, info)
            else:
                wanted.append((kind, name, info, live))
        unread = [self._to_judge(name, info) for _, name, info, _ in wanted if info.key not in self._known.holds]
        for at, (each, judgement) in enumerate(self._work.judge(self._matching, unread)):
            report(f"searching the files of {self._handle.name}", at, len(unread), "files")
            if judgement is not None:
                self._known.holds[each.key] = judgement
        for kind, _, info, live in wanted:
            judged = self._known.holds.get(info.key)
            if judged is not None and judged.holds:
                self.found.traces.append(self._row_trace(kind, info, live=live))
            elif judged is not None and judged.unclear:
                self.found.traces.append(Trace(kind, info.key, unclear(judged.unclear), removable=False))

    def _to_judge(self, name: str, info: ObjectInfo) -> FileToJudge:
        """Return a file with its partition values: from the log, else from its path."""
        known = self._known.values.get(name) or values_of(FileEntry(name.removeprefix(CHANGE_FOLDER)))
        spec = self._snapshot.partition_spec
        pairs = zip(spec.identity_columns, spec.stored_columns, strict=True)
        values = {stored: known.get(stored, known.get(column)) for column, stored in pairs}
        return FileToJudge(info.key, AddFile(name, values, info.size, 0, data_change=False), known)

    def _row_trace(self, kind: str, info: ObjectInfo, *, live: bool) -> Trace:
        if live:
            return Trace(kind, info.key, "a readable version has matching rows in it", removable=False)
        if key_hash(info.key) in self._known.named:
            return Trace(kind, info.key, "it was removed, and holds matching rows")
        age_ms = self._now_ms - info.modified_ms
        if age_ms >= ORPHAN_AGE_MS_MIN:
            return Trace(kind, info.key, "no version needs it, and it holds matching rows")
        until = datetime_of(info.modified_ms + ORPHAN_AGE_MS_MIN)
        why = "it holds matching rows, and a transaction may be about to commit it"
        return Trace(kind, info.key, why, until, removable=False)


_NOTHING = re.compile(r"(?!)")
_DROPPED = f"{LOG_FOLDER}.alluvia_dropped."
_WHY = {
    BOUNDS: "bounds of a file that was removed show a value",
    PATH: "the path of a file that was removed shows a value",
    CONDITION: "it repeats a condition",
    TEXT: "it has a comment or a property that was replaced and contains a value",
}


def _why(reasons: Collection[str | None]) -> str:
    return "; ".join(_WHY[each] for each in (BOUNDS, CONDITION, TEXT) if each in reasons)


def _version(name: str) -> int | None:
    """Return the version of a commit; None for other files of the log."""
    file = parse_name(name.removeprefix(LOG_FOLDER))
    return file.version if isinstance(file, CommitFile) else None
