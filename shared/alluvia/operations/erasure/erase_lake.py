"""Search a lake's objects outside of its tables for values of a condition: results, jobs, uploads, branches, texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from alluvia.delta.log.paths import LOG_FOLDER
from alluvia.errors import ObjectNotFound
from alluvia.operations.erasure.erase_files import BYTES_MAX, mentions
from alluvia.operations.erasure.erase_matching import word_pattern
from alluvia.operations.erasure.erase_report import (
    BRANCH_FILES,
    JOB_FILES,
    NO_WORDS,
    RESULT_FILES,
    TEXTS,
    UPLOAD_FILES,
    Searched,
    Trace,
)
from alluvia.operations.erasure.erase_texts import how_to_end
from alluvia.operations.references.branch_store import BRANCHES
from alluvia.operations.results.jobs import JOBS
from alluvia.operations.results.results import RESULTS
from alluvia.operations.results.upload_parts import UPLOADS
from alluvia.store import ObjectInfo, Store

FOLDER = "_alluvia/"
_WHY: Mapping[str, str] = {
    RESULT_FILES: "a query result contains a value of the condition",
    JOB_FILES: "a query job contains a value of the condition",
    UPLOAD_FILES: "an upload part contains a value of the condition",
    BRANCH_FILES: "a branch file contains a value of the condition",
    TEXTS: "it contains a value of the condition",
}
_NAMED = "its name contains a value of the condition: rename it or drop it"


class LakeTraces(NamedTuple):
    """What was searched of a lake besides its tables, by kind, and what was found."""

    searched: list[Searched]
    found: list[Trace]


def search_lake(store: Store, table: str, words: Collection[str], name_words: Collection[str]) -> LakeTraces:
    """Search a lake, apart from its tables, for words. Parts of uploads are those for one table.

    One LIST for 1,000 objects, and a GET for each that is not empty. Objects in which numbers of rows and versions
    stand are searched for words that are no numbers; `name_words` are looked for in the names of
    branches, streams, views and the like.
    """
    pattern, texts = word_pattern(words), word_pattern([word for word in words if not word.isdecimal()])
    totals: dict[str, list[int]] = {}
    traces = []
    names = word_pattern(name_words)
    named: dict[str, str] = {}
    for kind, info in _objects(store, table):
        total = totals.setdefault(kind, [0, 0])
        total[0] += 1
        total[1] += info.size
        place = _named(info.key, names) if kind in (BRANCH_FILES, TEXTS) else None
        if place is not None:
            named.setdefault(place, kind)
        plain = kind == TEXTS or (kind == BRANCH_FILES and LOG_FOLDER in info.key)
        why = _found(store, info, kind, texts if plain else pattern)
        if why:
            traces.append(Trace(kind, info.key, why, removable=kind in (RESULT_FILES, JOB_FILES, UPLOAD_FILES)))
    traces += [Trace(kind, place, _NAMED, removable=False) for place, kind in named.items()]
    return LakeTraces([Searched(kind, objects, size) for kind, (objects, size) in totals.items()], traces)


def _named(key: str, words: re.Pattern[str] | None) -> str | None:
    """Return the first folder of an object, or the object, with one of the words in its name."""
    end = 0
    while words is not None and end < len(key):
        slash = key.find("/", end)
        start, end = end, len(key) if slash < 0 else slash + 1
        if words.search(key[start:end]):
            return key[:end]
    return None


def _objects(store: Store, table: str) -> Iterator[tuple[str, ObjectInfo]]:
    for info in store.list(FOLDER):
        if info.key.startswith(RESULTS):
            yield RESULT_FILES, info
        elif info.key.startswith(JOBS):
            yield JOB_FILES, info
        elif info.key.startswith(UPLOADS):
            if info.key.startswith(f"{UPLOADS}{table}/"):
                yield UPLOAD_FILES, info
        elif info.key.startswith(BRANCHES):
            yield BRANCH_FILES, info
        else:
            yield TEXTS, info


def _found(store: Store, info: ObjectInfo, kind: str, words: re.Pattern[str] | None) -> str | None:
    """Return why an object counts; None where it shows nothing. One that clean-up has deleted shows nothing."""
    if not info.size:
        return None
    if words is None:  # nothing to look for in what has rows counts as not judged
        return None if kind == TEXTS or (kind == BRANCH_FILES and LOG_FOLDER in info.key) else NO_WORDS
    if info.size > BYTES_MAX:
        return "it could not be judged: it is too large to be searched"
    try:
        data = store.get(info.key)
    except ObjectNotFound:
        return None
    shown = mentions(data, words, ours=kind != UPLOAD_FILES)
    if shown is None:
        return "it could not be judged: its format is unknown"
    return f"{_WHY[kind]}{how_to_end(info.key) if kind == TEXTS else ''}" if shown else None
