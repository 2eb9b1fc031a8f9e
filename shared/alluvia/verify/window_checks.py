"""Compare the index of event ids of a checkpoint with the commits that it was made from. Pure.

An event missing from the index would be stored twice; an event that is wrongly in it would be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from hashlib import blake2b

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_files import (
    ID_BYTES,
    IdFiles,
    encode_range,
    files_of,
    heads_of,
    parts_of,
    range_columns,
    range_prints,
)
from alluvia.commit.event_window.id_runs import CommitIds
from alluvia.commit.event_window.index import read_index
from alluvia.commit.event_window.window import UNKNOWN, WindowRules, event_id_pairs, event_ids_of
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.lineage import in_gap
from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.commit import CommitActions, has_in_commit_timestamps
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import ObjectInfo
from alluvia.verify.report import Findings


def check_id_files(
    record: WindowRecord,
    rules: WindowRules,
    listed: Mapping[str, ObjectInfo],
    read: Callable[[str], bytes] | None,
    findings: Findings,
) -> None:
    """Check the id files of the commits that a window holds. `listed` has what is there; with `read`, look into it."""
    for version, files, may_be_gone in _held(record, rules):
        keys = [files.name(number) for number in range(files.ranges)]
        there = [listed[key].size for key in keys if key in listed]
        if may_be_gone and not there:
            continue
        for key in keys:
            if key not in listed:
                msg = f"{key} is missing: it has event ids of version {version}"
                findings.add("id-file-missing", msg, version=version, file=key)
        count = sum(size - files.header_bytes for size in there) / ID_BYTES
        if len(there) == files.ranges and count != files.ids:
            msg = f"the files in {files.folder} have {count:g} event ids, not {files.ids} as version {version} says"
            findings.add("id-file-wrong", msg, version=version, file=keys[0])
        elif read is not None:
            for number, key in enumerate(keys):
                if key in listed and not _is_sound(files, number, read(key)):
                    msg = f"{key} does not have its event ids where they are looked for"
                    findings.add("id-file-wrong", msg, version=version, file=key)


def _held(record: WindowRecord, rules: WindowRules) -> Iterator[tuple[int, IdFiles, bool]]:
    """Yield the id files that a window holds by their version, and whether vacuum may have deleted them.

    It goes by the window that it finds, which may have been shorter.
    """
    newest_ms = max(record.times.values(), default=0)
    for version, (timestamp_ms, sets_of_files) in sorted(record.files.items()):
        age_ms = newest_ms - timestamp_ms
        if age_ms <= rules.window_ms and not in_gap(rules.gaps, version):
            for files in sets_of_files:
                yield version, files, version <= record.settled and age_ms >= FILE_AGE_MS_MAX


def _is_sound(files: IdFiles, number: int, data: bytes) -> bool:
    try:
        heads = heads_of(range_prints(files, data))
    except Corrupt:
        return False
    pages = parts_of(heads, files.ranges * files.pages)
    first = number * files.pages
    if len(heads) and not first <= pc.min(pages).as_py() <= pc.max(pages).as_py() < first + files.pages:
        return False
    return encode_range(files, number, range_columns(files, data)) == data


_ENDLESS_MS = 1 << 62


@dataclass(slots=True)
class WindowRecord:
    """Events in the commits of a log: time in ms and digests of the event ids, by version.

    Of the digests one is without contents: so an index has them that was written by an earlier version of this library.
    `files` are the id files of commits that do not carry their ids, with the times.
    `settled` is the version since which the window's length and the table's own versions have been what they are.
    """

    times: dict[int, int] = field(default_factory=dict)
    digests: dict[int, frozenset[bytes]] = field(default_factory=dict)
    files: dict[int, tuple[int, list[IdFiles]]] = field(default_factory=dict)
    settled: int = 0
    rules: WindowRules | None = None

    def take(self, commit: CommitActions) -> None:
        """Take the next commit. Raises `Corrupt` where its event ids cannot be read."""
        if commit.metadata is not None:
            rules = window_rules(commit.metadata.configuration)
            if rules != self.rules:
                self.rules, self.settled = rules, commit.version
        self.times[commit.version] = commit.timestamp_ms
        files = files_of(commit)
        if files:
            self.files[commit.version] = commit.timestamp_ms, files
        ids = event_ids_of(commit)
        if len(ids):
            without = replace(ids, contents=UNKNOWN * len(ids))
            self.digests[commit.version] = frozenset((_digest(ids), _digest(without)))


def window_rules(configuration: Mapping[str, str]) -> WindowRules | None:
    """Return the rules of a table's window; None where they cannot be read."""
    try:
        return WindowRules.of(configuration)
    except Corrupt:
        return None


def wrong_index(
    data: bytes, name: str, version: int, record: WindowRecord, protocol: Protocol, metadata: Metadata
) -> Iterator[str]:
    """Yield differences between an index at a version and the commits. Raises `Corrupt` if it is unreadable.

    Commits that the log no longer holds, and those from before the window's rules changed, may be in it or not. The
    record takes the id files of the former.
    """
    rules = window_rules(metadata.configuration)
    if rules is None:
        return
    held: set[int] = set()
    index = read_index(data, name, replace(rules, window_ms=_ENDLESS_MS), version)
    for ids in index.entries():
        at = ids.version
        held.add(at)
        if at > version:
            yield f"it holds events of version {at}, which came after it"
        elif at in record.times and (
            _digest(ids) not in record.digests.get(at, ()) or ids.timestamp_ms != record.times[at]
        ):
            yield f"its events of version {at} are not those of the commit"
    by_version: dict[int, tuple[int, list[IdFiles]]] = {}
    for each in index.files(()):
        by_version.setdefault(each.version, (each.timestamp_ms, []))[1].append(each.files)
    for at, files in by_version.items():
        held.add(at)
        if at in record.times and record.files.get(at) != files:
            yield f"its files of event ids of version {at} are not those of the commit"
        elif at not in record.times:
            record.files[at] = files
    if not has_in_commit_timestamps(protocol, metadata):
        return
    newest_ms = max((time for at, time in record.times.items() if at <= version), default=0)
    for at in {**record.digests, **record.files}:
        needed = (
            at in record.times and record.settled < at <= version and record.times[at] >= newest_ms - rules.window_ms
        )
        if needed and at not in held and not in_gap(rules.gaps, at):
            yield f"it lacks the events of version {at}"


def _digest(ids: CommitIds) -> bytes:
    """Return a digest of a commit's ids and contents, in whatever order they come."""
    return blake2b(b"".join(sorted(map(b"".join, event_id_pairs(ids)))), digest_size=16).digest()
