"""Parts of a change of rows: which files were worked on together, and the outcome of each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field

import pyarrow as pa

from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.log.actions import AddFile, CdcFile
from alluvia.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Outcome:
    """The outcome of one file. `add` replaces it; without one it is removed completely.

    `rows` counts all that the file holds, the others those that it has left. `deleted` is None where the log alone said
    that all go, and not how many they are. `vector` holds positions that wait to be written. `odd_times` counts
    those of the rows that it has left (`delta.odd_times`); None if the file counts none.
    """

    file: AddFile
    changed: bool
    add: AddFile | None = None
    rows: int = 0
    deleted: int | None = 0
    updated: int = 0
    copied: int = 0
    sources: pa.Int64Array | None = None
    vector: pa.Int64Array | None = None
    odd_times: Counter[str] | None = None


@dataclass(slots=True)
class Part:
    """Files that were worked on together: their new rows and their changes share files, and stand or fall together.

    Nothing of it was written before `begun_ms`. `inserted` has the numbers of the source's rows that it inserts.
    `odd_times` counts those of the updated rows that wait for a file of their own.
    """

    begun_ms: int
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    adds: list[AddFile] = field(default_factory=list)
    cdc: list[CdcFile] = field(default_factory=list)
    inserted: pa.Int64Array | None = None
    rows_inserted: int = 0
    odd_times: Counter[str] = field(default_factory=Counter)


def part_of(begun_ms: int, *outcomes: Outcome) -> Part:
    """Return a part with the outcomes of some files. None of their output was written before that time."""
    return Part(begun_ms, {outcome.file.key: outcome for outcome in outcomes})


def still_good(parts: Iterable[Part], candidates: Iterable[AddFile], now_ms: int) -> list[Part]:
    """Return the parts about files that can still match, whose new files vacuum cannot have deleted."""
    live = {file.key for file in candidates}
    young_ms = now_ms - FILE_AGE_MS_MAX
    return [part for part in parts if part.outcomes.keys() <= live and part.begun_ms >= young_ms]


def files_left(parts: Iterable[Part], candidates: Iterable[AddFile]) -> list[AddFile]:
    """Return the files that no part is about."""
    done = {key for part in parts for key in part.outcomes}
    return [file for file in candidates if file.key not in done]


def outcomes_of(parts: Iterable[Part]) -> list[Outcome]:
    """Return the outcomes of all files."""
    return [outcome for part in parts for outcome in part.outcomes.values()]


def new_files(parts: Sequence[Part]) -> list[AddFile]:
    """Return the data files that parts have written."""
    replaced = [
        outcome.add
        for outcome in outcomes_of(parts)
        if outcome.add is not None and outcome.add.path != outcome.file.path
    ]
    return [*replaced, *(add for part in parts for add in part.adds)]
