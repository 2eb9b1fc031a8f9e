"""Compare what the log says about a table's files with itself and with the listing. No data file is opened.

Source: Delta protocol, "Add File and Remove File", "Deletion Vectors", "Partition Value Serialization".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from alluvia.delta.deletion_vectors.descriptors import cardinality_of, decode_inline
from alluvia.delta.deletion_vectors.storage import NO_POSITIONS
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.partitioning.values import partition_value
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Corrupt, Invalid, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import ObjectInfo, Store
from alluvia.store.base import LINK
from alluvia.verify.leaves import Leaf
from alluvia.verify.log_walk import Change
from alluvia.verify.objects import Objects, Wanted, named_paths, paths_of, wanted_objects
from alluvia.verify.replaying import Replay
from alluvia.verify.report import Findings
from alluvia.verify.statistics_checks import impossible, read_statistics

LOOKS_MAX = 1000
"""So many files that a listing lacks are looked up one by one."""
DAY_MS = 24 * 60 * 60 * 1000
_SLACK_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a snapshot lie, and what a listing of its root found there.

    `whole`: whether every commit up to the snapshot could be read. If not, a file may have been removed by one of them.
    """

    store: Store
    snapshot: Snapshot
    objects: Objects
    whole: bool

    def head_all(self, keys: Sequence[str]) -> dict[str, ObjectInfo | None]:
        """Look objects up; those beyond a limit are taken for absent."""
        looked = keys[:LOOKS_MAX]
        return {**dict.fromkeys(keys), **dict(zip(looked, self.store.map(self._head, looked), strict=True))}

    def _head(self, key: str) -> ObjectInfo | None:
        try:
            return self.store.head(key)
        except Invalid:  # a path that no object can have
            return None
        except Unsupported:  # a link, or behind one
            return ObjectInfo(key, 0, 0, LINK)


@dataclass(slots=True)
class There:
    """Paths of data files that can be opened, and of those whose deletion vector cannot be read."""

    paths: set[str] = field(default_factory=set)
    broken_vectors: set[str] = field(default_factory=set)


def check_live_files(place: Place, files: Sequence[AddFile], findings: Findings) -> There:
    """Report live files and deletion vectors that are missing or have another size."""
    absent: list[Wanted] = []
    there = There()
    for wanted in wanted_objects(files, place.objects, place.snapshot.root, place.snapshot.locate):
        if isinstance(wanted, tuple):
            kind, file, reason = wanted
            findings.add(kind, reason, file=file.path)
            there.broken_vectors.add(file.path)
        elif wanted.info is None:
            absent.append(wanted)
        else:
            _check_size(wanted, wanted.info, there, findings)
    heads = place.head_all(sorted({each.key for each in absent}))
    for each in absent:
        info = heads[each.key]
        if info is not None and info.etag == LINK:
            msg = f"data file {each.file.path}: {each.path} is a symbolic link out of the table's folder, or behind one"
            findings.add("file-outside-lake", msg, file=each.file.path)
            there.broken_vectors.add(each.file.path)
        elif info is not None:
            _check_size(each, info, there, findings)
        elif not place.whole:
            msg = f"{each.path} is gone; a commit that cannot be read may have removed it"
            findings.add("data-file-gone", msg, file=each.file.path)
            there.broken_vectors.add(each.file.path)
        elif each.exact:
            msg = f"data file {each.path} is missing"
            findings.add("data-file-missing", msg, file=each.path)
        else:
            msg = f"data file {each.file.path}: its deletion vector file {each.path} is missing"
            findings.add("deletion-vector-missing", msg, file=each.file.path)
            there.broken_vectors.add(each.file.path)
    return there


def _check_size(wanted: Wanted, info: ObjectInfo, there: There, findings: Findings) -> None:
    if wanted.exact:
        there.paths.add(wanted.path)
        if info.size != wanted.size:
            msg = f"data file {wanted.path} has {info.size} bytes, the log says {wanted.size}"
            findings.add("data-file-size-wrong", msg, file=wanted.path)
    elif info.size < wanted.size:
        msg = f"data file {wanted.file.path}: its deletion vector file {wanted.path} ends after {info.size} bytes, "
        msg += f"before byte {wanted.size} of the vector"
        findings.add("deletion-vector-cut-off", msg, file=wanted.file.path)
        there.broken_vectors.add(wanted.file.path)


def check_log_entries(
    place: Place, files: Sequence[AddFile], leaves: Sequence[Leaf], there: There, findings: Findings
) -> None:
    """Report entries of live files that cannot be true, whatever the files hold."""
    seen: set[str] = set()
    for file in files:
        if file.path in seen and place.whole:
            msg = f"data file {file.path} is in the table twice, with different deletion vectors"
            findings.add("data-file-listed-twice", msg, file=file.path)
        seen.add(file.path)
        _check_partition(place.snapshot, file, findings)
        statistics = read_statistics(file.stats, leaves)
        if statistics is None:
            msg = f"data file {file.path}: its statistics are not a JSON object"
            findings.add("statistics-unreadable", msg, file=file.path)
        for column, what in impossible(statistics or {}, leaves):
            where = "" if column is None else f" of column {column}"
            msg = f"data file {file.path}: the statistics{where} cannot be true: {what}"
            findings.add("statistics-impossible", msg, file=file.path, column=column)
        if file.path not in there.broken_vectors and not _check_vector(file, findings):
            there.broken_vectors.add(file.path)


def _check_partition(snapshot: Snapshot, file: AddFile, findings: Findings) -> None:
    for name in snapshot.partition_columns:
        field = snapshot.schema.field(name)
        try:
            value = partition_value(file, snapshot.physical_name(name), field.type)
        except Corrupt as error:
            findings.add("partition-value-unreadable", str(error), file=file.path, column=name)
            continue
        if value is None and not field.nullable:
            msg = f"data file {file.path}: partition column {name} must not be null, but is"
            findings.add("null-in-required-column", msg, file=file.path, column=name)


def _check_vector(file: AddFile, findings: Findings) -> bool:
    """Look at what the log itself holds of a file's deletion vector; whether that is sound."""
    vector = file.deletion_vector
    if vector is None:
        return True
    rows = file.num_records
    try:
        deleted = cardinality_of(vector)
        positions = decode_inline(vector) if vector.get("storageType") == "i" and deleted else NO_POSITIONS
    except AlluviaError as error:
        findings.add("deletion-vector-unreadable", f"data file {file.path}: {error}", file=file.path)
        return False
    beyond = rows is not None and len(positions) > 0 and positions[-1].as_py() >= rows
    if rows is not None and (deleted > rows or beyond):
        what = f"row {positions[-1]}" if beyond else f"{deleted} rows"
        msg = f"data file {file.path} has {rows} rows by its statistics, but its deletion vector deletes {what}"
        findings.add("deletion-vector-out-of-range", msg, file=file.path)
        return False
    return True


@dataclass(frozen=True, slots=True)
class Retention:
    """The past that a table keeps: files removed since `since_ms`, and after `oldest`, its oldest version."""

    now_ms: int
    since_ms: int
    oldest: int


def check_tombstones(place: Place, replay: Replay, retention: Retention, findings: Findings) -> None:
    """Report removed files that are gone before their time, and tombstones with a time that cannot be."""
    absent: list[tuple[RemoveFile, str, str]] = []
    live = named_paths(replay.files.values(), place.snapshot.root, place.snapshot.locate)
    for key, file in replay.tombstones.items():
        if not 0 < file.deletion_timestamp <= retention.now_ms + DAY_MS:
            msg = f"the tombstone of {file.path} has the deletionTimestamp {file.deletion_timestamp}"
            findings.add("tombstone-time-wrong", msg, file=file.path)
        removed = replay.removed.get(key)
        version = replay.base if removed is None else removed.version
        if version <= retention.oldest or file.deletion_timestamp <= retention.since_ms:
            continue
        for path in paths_of(file):
            try:
                located = place.snapshot.locate(path)
            except AlluviaError:  # outside of the lake, like other tables' files
                continue
            inside = located[len(place.snapshot.root) :] if located.startswith(place.snapshot.root) else None
            if inside is None or (inside not in live and place.objects.get(inside) is None):
                absent.append((file, path, located))
    heads = place.head_all(sorted({located for _, _, located in absent}))
    gone = [(file, path) for file, path, located in absent if heads[located] is None]
    if gone:
        removed_in = [replay.removed[file.key].version for file, _ in gone if file.key in replay.removed]
        lost = f"; versions below {max(removed_in)} cannot all be read" if removed_in else ""
        msg = f"{len(gone)} files that were removed within the retention are gone, such as {gone[0][1]}{lost}"
        findings.add("tombstone-file-missing", msg, file=gone[0][0].path)


def check_changes(place: Place, changes: Iterable[Change], retention: Retention, findings: Findings) -> None:
    """Report change-data files that are gone or of another size. Vacuum leaves those of the last day alone."""
    left = [each for each in changes if each.timestamp_ms > retention.since_ms and each.version > retention.oldest]
    keys = {}
    for change in left:
        try:
            keys[change.file.path] = place.snapshot.locate(change.file.path)
        except AlluviaError as error:
            findings.add("file-outside-lake", str(error), version=change.version, file=change.file.path)
    heads = place.head_all(sorted(set(keys.values())))
    for change in left:
        if change.file.path not in keys:
            continue
        info = heads[keys[change.file.path]]
        name = f"change-data file {change.file.path} of version {change.version}"
        if info is None:
            young = change.timestamp_ms > retention.now_ms - DAY_MS + _SLACK_MS
            kind = "change-file-missing" if young else "change-file-gone"
            findings.add(kind, f"{name} is missing", version=change.version, file=change.file.path)
        elif info.size != change.file.size:
            msg = f"{name} has {info.size} bytes, the log says {change.file.size}"
            findings.add("change-file-size-wrong", msg, version=change.version, file=change.file.path)


def find_orphans(place: Place, replay: Replay, waiting: Iterable[AddFile]) -> list[ObjectInfo]:
    """Return the files that no live file, tombstone or `waiting` file names; hidden folders hold none."""
    files: Iterable[AddFile | RemoveFile] = [*replay.files.values(), *replay.tombstones.values(), *waiting]
    named = named_paths(files, place.snapshot.root, place.snapshot.locate)
    return [info for key, info in place.objects.other.items() if key not in named]
