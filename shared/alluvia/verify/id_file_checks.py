"""Check the event ids that commits of the window have in files: that they are there, and as ingestion looks them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_files import (
    ID_BYTES,
    IdFiles,
    encode_range,
    heads_of,
    parts_of,
    range_columns,
    range_prints,
)
from alluvia.commit.event_window.window import WindowRules
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.lineage import in_gap
from alluvia.errors import Corrupt
from alluvia.store import ObjectInfo
from alluvia.verify.report import Findings
from alluvia.verify.window_checks import WindowRecord


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
    for version, (timestamp_ms, found) in sorted(record.files.items()):
        age_ms = newest_ms - timestamp_ms
        if age_ms <= rules.window_ms and not in_gap(rules.gaps, version):
            for files in found:
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
