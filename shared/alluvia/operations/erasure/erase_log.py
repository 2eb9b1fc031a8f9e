"""Traces of erased rows in a table's log: bounds of their values, paths, texts of conditions. Pure.

A file's bounds show a value if the condition holds for them, as if they were a row. What is shown of files that a
readable version needs stays: they hold no row that matches. A claim holds the text of a commit, and shows what that
shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.commit_offers import NEXT_INFO, TAKEN_INFO
from alluvia.commit.intents import CLAIM, TRANSACTION, Claim, parse_claim
from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, RemoveFile
from alluvia.delta.log.commit import EVENT_CONTENTS, EVENT_FILES, EVENT_IDS
from alluvia.delta.log.fields import Json
from alluvia.delta.log.files.action_rows import FileRows
from alluvia.delta.log.files.parquet import ActionFile, bodies
from alluvia.delta.log.paths import decode_path
from alluvia.delta.partitioning.transforms import PARTITION_TAG
from alluvia.delta.partitioning.values import partition_texts, partition_value
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.statistics.typed import has_bounds, parse_texts
from alluvia.delta.statistics.written import TEXT_LENGTH_MAX
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_files import TextBounds
from alluvia.operations.erasure.erase_matching import Matching, word_pattern
from alluvia.operations.erasure.erase_metadata import owner_texts, without_texts

BOUNDS, PATH, CONDITION, TEXT = "bounds", "path", "condition", "text"
_COMBINED_MAX = 4
"""The most columns whose least and greatest values are combined to rows in every way."""
_BOUNDS = ("minValues", "maxValues")
_FILES = ("add", "remove", "cdc")
_STRUCTURE = frozenset(
    {"timestamp", "inCommitTimestamp", "txnId", "operation", "engineInfo", "isolationLevel", "readVersion",
     "isBlindAppend", "operationMetrics", EVENT_IDS, EVENT_CONTENTS, EVENT_FILES, TRANSACTION, TAKEN_INFO, NEXT_INFO}
)  # fmt: skip
"""What commitInfo says that readers and writers of the log need, and that has hashes, ids and numbers alone."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a log says of one file: its decoded path, statistics and partition values, None where it does not."""

    path: str
    stats: str | None = None
    values: Mapping[str, str | None] | None = None


class LogView:
    """Finds and takes out what a log shows. `keeps` says of a path whether a readable version needs that file.

    `standing` are the domains of claims that a readable version has: they stay as they are.
    """

    def __init__(self, matching: Matching, keeps: Callable[[str], bool], standing: Collection[str] = ()) -> None:
        self._matching = matching
        self._keeps = keeps
        self._standing = standing
        self._schema = pa.schema([matching.snapshot.schema.field(name) for name in matching.columns])
        partitioned = matching.snapshot.partition_columns
        self.partitioned = [name for name in matching.columns if name in partitioned]
        self.needs_values = bool(self.partitioned) or matching.hides
        self._stored = {name: matching.snapshot.physical_name(name) for name in matching.columns}
        self._bounded: dict[ColumnPath, pa.DataType] = {
            (self._stored[field.name],): field.type
            for field in self._schema
            if field.name not in partitioned and has_bounds(field.type)
        }
        self._words = matching.words | {word[:TEXT_LENGTH_MAX] for word in matching.words}
        self._word = word_pattern(matching.words)
        self._free_word = word_pattern(matching.name_words)
        self._kept_texts: set[str] = set()
        self.keep_texts(matching.snapshot.state.metadata)
        hides = matching.places is not None and matching.hides
        self._elsewhere = TextBounds(matching.places, matching.words) if hides and matching.places else None

    def shown(self, files: Sequence[FileEntry]) -> list[str | None]:
        """Return for each file its parts that show a value: its bounds, its path, or nothing."""
        gone = [at for at, file in enumerate(files) if not self._keeps(file.path)]
        places: list[str | None] = [None] * len(files)
        for at, shown in zip(gone, self._values_shown([files[at] for at in gone]), strict=True):
            places[at] = PATH if shown else None
        for at, shown in zip(gone, self._bounds_shown([files[at].stats for at in gone]), strict=True):
            places[at] = BOUNDS if shown else places[at]
        if self._elsewhere is not None:
            for at in gone:
                if self._elsewhere.in_bounds(files[at].stats):
                    places[at] = BOUNDS
                elif places[at] is None and self._elsewhere.in_values(values_of(files[at])):
                    places[at] = PATH
        return places

    def may_show(self, files: Iterable[FileEntry]) -> bool:
        """Whether there are bounds of a file that is not kept and can have matched, whatever they show."""
        return any(
            file.stats is not None
            and not _parsed(file.stats).keys().isdisjoint(_BOUNDS)
            and not self._keeps(file.path)
            and self._matching.can_match(AddFile(file.path, values_of(file), 0, 0, data_change=False, stats=file.stats))
            for file in files
        )

    def shows_condition(self, info: Mapping[str, Any]) -> bool:
        """Whether a commitInfo repeats a text or number of the condition."""
        return info != self._without_words(info)

    def keep_texts(self, metadata: Metadata) -> None:
        """Leave the texts of metadata that a readable version has."""
        self._kept_texts.update(text for _, text in owner_texts(metadata.to_json()))

    def shows_text(self, text: str) -> bool:
        """Whether a text that people wrote has a text of the condition: numbers and keys may mean anything."""
        return self._free_word is not None and self._free_word.search(text) is not None

    def shows_replaced(self, metadata: Json) -> bool:
        """Whether the body of a metaData action has such a text that no readable version has."""
        return any(self._goes(text) for _, text in owner_texts(metadata))

    def _goes(self, text: str) -> bool:
        return text not in self._kept_texts and self.shows_text(text)

    def redacted(self, data: bytes) -> bytes:
        """Return a commit without bounds of files that are not kept and can have matched, and without such texts.

        Readers make the same versions of it, apart from comments and properties that were replaced since: paths, sizes
        and numbers of rows stay.
        """
        return b"".join(map(self._redacted_line, data.splitlines(keepends=True)))

    def _redacted_line(self, line: bytes) -> bytes:
        if line.isspace():
            return line
        action: dict[str, Any] = orjson.loads(line)
        changed = dict(action)
        for tag, body in action.items():
            if tag == "commitInfo" and body:
                changed[tag] = self._without_words(body)
            elif tag in ("add", "remove") and body and not self._keeps(decode_path(body["path"])):
                changed[tag] = self._without_bounds(tag, body)
            elif tag == "metaData" and body:
                changed[tag] = without_texts(body, self._goes)
            elif tag == "domainMetadata" and body:
                changed[tag] = self._redacted_domain(body)
        return line if changed == action else orjson.dumps(changed) + b"\n"

    def _redacted_domain(self, body: Json) -> Json:
        claim = claim_in(body)
        if claim is None or claim.domain in self._standing:
            return body
        intended = self.redacted(claim.commit.encode()).decode()
        return body if intended == claim.commit else replace(claim, commit=intended).placed().to_json()

    def _without_words(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Numbers alone are versions and sizes: they say nothing of rows."""
        if self._word is None:
            return info
        return {name: value if name in _STRUCTURE else self._without_word(value) for name, value in info.items()}

    def _without_word(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: "?" if self._names_word(inner) else inner for name, inner in value.items()}
        return "?" if self._names_word(value) else value

    def _names_word(self, value: Any) -> bool:
        if isinstance(value, (int, float)) or value is None:
            return False
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        return self._word is not None and not text.isdecimal() and self._word.search(text) is not None

    def _without_bounds(self, tag: str, body: dict[str, Any]) -> dict[str, Any]:
        statistics = _parsed(body.get("stats"))
        tags = body.get("tags") or {}
        telling = not statistics.keys().isdisjoint(_BOUNDS) or PARTITION_TAG in tags
        if not telling or (tag == "add" and not self._can_match(body)):
            return body
        changed = dict(body)
        if statistics:
            kept = {name: value for name, value in statistics.items() if name not in _BOUNDS}
            changed["stats"] = orjson.dumps(kept).decode()
        if PARTITION_TAG in tags:
            changed["tags"] = {name: value for name, value in tags.items() if name != PARTITION_TAG}
        return changed

    def _can_match(self, body: dict[str, Any]) -> bool:
        return self._matching.can_match(AddFile.from_json(body))

    def _values_shown(self, files: Sequence[FileEntry]) -> list[bool]:
        """Return for each file whether its partition values, which its path repeats, show a value."""
        if not files or not self.partitioned:
            return [False] * len(files)
        adds = [AddFile(each.path, values_of(each), 0, 0, data_change=False) for each in files]
        known = {
            name: pa.array([partition_value(add, self._stored[name], kind) for add in adds], kind)
            for name, kind in ((name, self._schema.field(name).type) for name in self.partitioned)
        }
        held = self._holds(known, len(files))
        texts = [set(map(str, add.partition_values.values())) for add in adds]
        return [bool(each) or (each is None and not self._words.isdisjoint(text)) for each, text in
                zip(held, texts, strict=True)]  # fmt: skip

    def _bounds_shown(self, stats: Sequence[str | None]) -> list[bool]:
        if not self._bounded or not any(text and _BOUNDS[0] in text for text in stats):
            return [False] * len(stats)
        bounds = parse_texts(pa.array(stats, pa.string()), self._bounded).columns
        names = list(self._bounded)
        every = product(("low", "high"), repeat=len(names)) if len(names) <= _COMBINED_MAX else (
            (end,) * len(names) for end in ("low", "high")
        )  # fmt: skip
        shown = [False] * len(stats)
        for ends in every:
            arrays = {name: getattr(bounds[name], end) for name, end in zip(names, ends, strict=True)}
            whole = {name: _uncut(arrays[(stored,)]) for name, stored in self._stored.items() if (stored,) in arrays}
            present = [
                any(values) for values in zip(*(pc.is_valid(a).to_pylist() for a in arrays.values()), strict=True)
            ]
            texts = zip(*(array.to_pylist() for array in arrays.values()), strict=True)
            held = self._holds(whole, len(stats))
            for at, (here, holds, values) in enumerate(zip(present, held, texts, strict=True)):
                shown[at] = shown[at] or (here and (bool(holds) or (holds is None and self._any_word(values))))
        return shown

    def _any_word(self, values: Collection[object]) -> bool:
        texts = (str(value) for value in values if value is not None)
        return any(text in self._words or text[:TEXT_LENGTH_MAX] in self._words for text in texts)

    def _holds(self, known: Mapping[str, pa.Array], rows: int) -> list[bool | None]:
        """Return whether the condition holds for rows of which some columns are known; None where that is unclear."""
        arrays = [known.get(field.name, pa.nulls(rows, field.type)) for field in self._schema]
        nullable = pa.schema([field.with_nullable(True) for field in self._schema])
        held = self._matching.bounded(pa.RecordBatch.from_arrays(arrays, schema=nullable))
        flags: list[bool | None] = held.to_pylist()
        return flags


def commit_files(data: bytes) -> Iterator[FileEntry]:
    """Yield what a commit, and what a claim in it will commit, says of files."""
    for body in _bodies(data, _FILES):
        values = body.get("partitionValues")
        yield FileEntry(decode_path(body["path"]), body.get("stats"), values if isinstance(values, dict) else None)


def commit_infos(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield what a commit, and what a claim in it will commit, says of itself."""
    return _bodies(data, ("commitInfo",))


def commit_metadata(data: bytes) -> Iterator[Json]:
    """Yield the bodies of the metaData actions of a commit, and of a claim in it."""
    return _bodies(data, ("metaData",)) if b"metaData" in data else iter(())


def checkpoint_texts(name: str, data: bytes) -> bytes:
    """Return the metadata and the metadata domains of a checkpoint as lines of a commit."""
    few = ActionFile(name, data).few()
    lines = [{kind: body} for kind in ("metaData", "domainMetadata") for body in bodies(few[kind])]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def checkpoint_files(name: str, data: bytes) -> Iterator[FileEntry]:
    """Yield what a checkpoint, or one of its sidecars, shows of files."""
    file = ActionFile(name, data)
    for add in FileRows(file, "add", AddFile.from_json).actions():
        yield FileEntry(add.path, add.stats, add.partition_values)
    for remove in FileRows(file, "remove", RemoveFile.from_json).actions():
        yield FileEntry(remove.path, None, remove.partition_values)


def claim_in(body: Json) -> Claim | None:
    """Return the claim that a metadata domain is; None for another one, and where a claim is lifted."""
    domain = DomainMetadata.from_json(body)
    return parse_claim(domain) if domain.domain.startswith(CLAIM) and not domain.removed else None


def values_of(file: FileEntry) -> Mapping[str, str | None]:
    """Return a file's partition values, from its path where the log does not say them."""
    if file.values is not None:
        return file.values
    try:
        return partition_texts(file.path)
    except Invalid:  # its folders mean something else
        return {}


def _bodies(data: bytes, tags: Collection[str]) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        if line and not line.isspace():
            for tag, body in orjson.loads(line).items():
                if tag in tags and isinstance(body, dict):
                    yield body
                elif tag == "domainMetadata" and (claim := claim_in(body)) is not None:
                    yield from _bodies(claim.commit.encode(), tags)


def _parsed(stats: object) -> dict[str, Any]:
    try:
        value = orjson.loads(stats) if isinstance(stats, str) else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _uncut(bounds: pa.Array) -> pa.Array:
    """Return bounds with null for text that may be cut, of which nothing is known but its beginning."""
    if not pa.types.is_string(bounds.type):
        return bounds
    return pc.if_else(pc.less(pc.utf8_length(bounds), TEXT_LENGTH_MAX), bounds, None)
