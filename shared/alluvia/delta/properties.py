"""Table properties: the known names, and their values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import orjson

from alluvia.delta.arguments import interval_ms
from alluvia.delta.log.commit import IN_COMMIT_TIMESTAMPS
from alluvia.delta.log.features import TYPE_WIDENING
from alluvia.errors import Corrupt, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import nearest

PARTITION_BY = "alluvia.partition_by"
SORT_BY = "alluvia.sort_by"
CLUSTER_BY = "alluvia.cluster_by"
WRITERS = "alluvia.writers"
DEDUP_WINDOW = "alluvia.dedup_window"
ID_FIELD = "alluvia.id_field"
TIME_FIELD = "alluvia.time_field"
UNREADABLE_TIME = "alluvia.unreadable_time"
FUTURE_TIME = "alluvia.future_time"
ARRIVAL, REJECT, KEEP = "arrival", "reject", "keep"
"""Policies for events whose time cannot be read or is in the far future: store the arrival as their time, reject them,

or keep their time.
"""
TARGET_FILE_SIZE = "alluvia.target_file_size"
ROW_GROUP_ROWS = "alluvia.row_group_rows"
ROW_GROUP_ROWS_MAX = 122_880
BLOOM_FILTERS = "alluvia.bloom_filters"
CODEC = "alluvia.codec"
OLDEST_READABLE = "alluvia.oldest_readable_version"
ATTACHED = "alluvia.attached"
"""Of a log whose table is elsewhere: where, as an absolute path or a URI. Users cannot set it."""
EXTERNAL = "alluvia.external"
"""Of an external table: where its files are, and their format, as JSON. Users cannot set it."""
CLONE_OF = "alluvia.clone"
"""Of a shallow clone: the keepers that it was given, as JSON. Users cannot set it."""
ROLLUP = "alluvia.rollup"
"""What a rollup is computed from, and how: JSON that `create_rollup` writes."""
PIPELINE = "alluvia.pipeline"
"""How a table of a pipeline is made: JSON that its runs write."""
MERGE_QUERY = "alluvia.merge_query"
"""SQL over `source` by which optimize folds rows into fewer ones; empty for none."""
TTL = "alluvia.ttl"
TTL_COLUMN = "alluvia.ttl_column"
APPEND_ONLY = "delta.appendOnly"
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
LOG_RETENTION = "delta.logRetentionDuration"
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
FILE_RETENTION = "delta.deletedFileRetentionDuration"
INDEXED_COLUMNS = "delta.dataSkippingNumIndexedCols"
CHECKPOINT_POLICY = "delta.checkpointPolicy"
STATISTICS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
STATISTICS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"
DELETION_VECTORS = "delta.enableDeletionVectors"
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
CONSTRAINT = "delta.constraints."
"""The start of a CHECK constraint's name."""
PROPERTIES_AS = "alluvia.properties"
"""How data files hold the column `properties`: as `TEXT`, or as a `VARIANT`. Set when a table is created."""
TEXT, VARIANT = "text", "variant"
VARIANT_SHREDDING = "delta.enableVariantShredding"
CLUSTER_COLUMNS_MAX = 4
"""By more columns than this a table cannot be clustered: each of them would say next to nothing."""
CONFIGURATIONS_KEPT = 1024
"""How many tables' properties a process keeps parsed: each request needs those of its table, whichever it is."""

KNOWN = frozenset(
    {
        *(PARTITION_BY, SORT_BY, WRITERS, DEDUP_WINDOW, TARGET_FILE_SIZE, ROW_GROUP_ROWS, CODEC, OLDEST_READABLE),
        *(CLUSTER_BY, BLOOM_FILTERS, ID_FIELD, TIME_FIELD, UNREADABLE_TIME, FUTURE_TIME),
        *(ROLLUP, PIPELINE, MERGE_QUERY, TTL, TTL_COLUMN, PROPERTIES_AS),
        *(IN_COMMIT_TIMESTAMPS, APPEND_ONLY, CHECKPOINT_INTERVAL, LOG_RETENTION, FILE_RETENTION, INDEXED_COLUMNS),
        *(DELETION_VECTORS, CHANGE_DATA_FEED, LOG_CLEANUP),
        *(CHECKPOINT_POLICY, STATISTICS_AS_JSON, STATISTICS_AS_STRUCT),
    }
)
"""The known properties, besides constraints."""

_NOT_OF_DERIVED = {WRITERS: "any", APPEND_ONLY: "true", CHANGE_DATA_FEED: "true"}
"""No rollup or table of a pipeline can have other writers, rows that stay, or change files."""
_NOT_WRITTEN = {
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": TYPE_WIDENING,
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
}
"""Delta's properties that switch on features which this library reads at most."""
_COLUMN_MAPPING = "delta.columnMapping."
_PROTOCOL = ("delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion")

_SIZE = re.compile(r"^\s*(\d+)\s*(b|kb|mb|gb)?\s*$", re.IGNORECASE)
_SIZES = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class Properties:
    """A table's properties, read once. Sizes in bytes, durations in ms; paths of fields in parts, () for none."""

    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    writers: str
    dedup_window_ms: int
    target_file_size: int
    row_group_rows: int
    codec: str
    in_commit_timestamps: bool
    append_only: bool
    checkpoint_interval: int
    log_retention_ms: int
    file_retention_ms: int
    indexed_columns: int
    deletion_vectors: bool = False
    change_data_feed: bool = False
    constraints: Mapping[str, str] = field(default_factory=dict)
    checkpoint_policy: str = "classic"
    statistics_as_json: bool = True
    statistics_as_struct: bool = True
    cleans_log: bool = True
    id_field: tuple[str, ...] = ()
    time_field: tuple[str, ...] = ()
    ttl_ms: int = 0
    """How long rows are kept; 0 for ever."""
    ttl_column: str = ""
    bloom_filters: tuple[str, ...] = ()
    merge_query: str = ""
    cluster_by: tuple[str, ...] = ()
    unreadable_time: str = ARRIVAL
    future_time: str = KEEP
    properties_as: str = TEXT


def read_properties(configuration: Mapping[str, str]) -> Properties:
    """Read a table's properties; absent ones get defaults. Raises `Corrupt`, naming a broken one."""
    return _read_once(frozenset(configuration.items()))


@lru_cache(maxsize=CONFIGURATIONS_KEPT)
def _read_once(configuration: frozenset[tuple[str, str]]) -> Properties:
    try:
        return _read(dict(configuration))
    except Invalid as error:
        raise Corrupt(str(error)) from error


def check_properties(configuration: Mapping[str, object]) -> dict[str, str]:
    """Return a caller's properties. Raises `Invalid`, naming the property, for an unknown one or a broken value."""
    checked: dict[str, str] = {}
    for name, value in configuration.items():
        if not isinstance(value, str):
            raise Invalid(f"property {name}: expected text, got {type(value).__name__}")
        constraint = name.startswith(CONSTRAINT) and name != CONSTRAINT
        if name in _NOT_WRITTEN:
            raise Invalid(f"property {name} needs the feature {_NOT_WRITTEN[name]}, which this library does not write")
        if name == VARIANT_SHREDDING:
            raise Invalid(f"property {name} cannot be set: create the table with {PROPERTIES_AS} = '{VARIANT}'")
        if name.startswith(_COLUMN_MAPPING):
            msg = f"property {name} cannot be set: renaming or dropping a column with evolve(…) turns column mapping on"
            raise Invalid(msg)
        if name.startswith(_PROTOCOL):
            msg = f"property {name} cannot be set: the protocol follows from the other properties and the columns"
            raise Invalid(msg)
        bare = {each.partition(".")[2]: each for each in sorted(KNOWN)}
        whole = next((each for short, each in bare.items() if short.lower() == name.lower()), None)
        if whole is not None:
            raise Invalid(f"property {name} is unknown: did you mean {whole}?")
        if name.startswith(("alluvia.", "delta.")) and name not in KNOWN and not constraint:
            near = next((f"did you mean {bare[each]}?" for each in nearest(name.partition(".")[2], bare)), None)
            raise Invalid(f"property {name} is unknown: {near or 'the known ones are ' + ', '.join(sorted(KNOWN))}")
        checked[name] = value
    _read(checked)
    return checked


def is_derived(configuration: Mapping[str, str]) -> bool:
    """Whether a table's rows follow from others': a rollup, or a table of a pipeline."""
    return ROLLUP in configuration or PIPELINE in configuration


def derived_columns(configuration: Mapping[str, str]) -> str:
    """Say where the columns of such a table come from, and how to have others."""
    if PIPELINE in configuration:
        return "a table of a pipeline has the columns of its query: change the query in its declaration"
    return "a rollup has the columns of its query: drop it, and create it with another query"


def check_derived(configuration: Mapping[str, str]) -> None:
    """Raise `Invalid`, naming it, for a property that a rollup, or a table of a pipeline, cannot have."""
    if not is_derived(configuration):
        return
    what = "a rollup: only its refresh writes it"
    if PIPELINE in configuration:
        what = "a table of a pipeline: only its runs write it"
    for name, value in _NOT_OF_DERIVED.items():
        if configuration.get(name, "").lower() == value:
            raise Invalid(f"property {name}: {value!r} is not possible for {what}")


def _read(given: Mapping[str, str]) -> Properties:
    writers = given.get(WRITERS, "alluvia")
    if writers not in ("alluvia", "any"):
        raise Invalid(f"property {WRITERS}: {writers!r} is not valid; use 'alluvia' or 'any'")
    codec = given.get(CODEC, "zstd").lower()
    if codec not in _CODECS:
        raise Invalid(f"property {CODEC}: {codec!r} is not valid; use one of {', '.join(_CODECS)}")
    return Properties(
        partition_by=_names(given, PARTITION_BY),
        sort_by=_names(given, SORT_BY),
        writers=writers,
        dedup_window_ms=_duration(given, DEDUP_WINDOW, "1 hour"),
        target_file_size=_size(given, TARGET_FILE_SIZE, "128 MB"),
        row_group_rows=_positive(given, ROW_GROUP_ROWS, ROW_GROUP_ROWS_MAX),
        codec=codec,
        in_commit_timestamps=_flag(given, IN_COMMIT_TIMESTAMPS),
        append_only=_flag(given, APPEND_ONLY),
        checkpoint_interval=_positive(given, CHECKPOINT_INTERVAL, 10),
        log_retention_ms=_duration(given, LOG_RETENTION, "30 days"),
        file_retention_ms=_duration(given, FILE_RETENTION, "1 week"),
        indexed_columns=_indexed(given),
        deletion_vectors=_flag(given, DELETION_VECTORS),
        change_data_feed=_flag(given, CHANGE_DATA_FEED),
        constraints={name.removeprefix(CONSTRAINT): given[name] for name in given if name.startswith(CONSTRAINT)},
        checkpoint_policy=_policy(given),
        statistics_as_json=_flag(given, STATISTICS_AS_JSON, "true"),
        statistics_as_struct=_flag(given, STATISTICS_AS_STRUCT, "true"),
        cleans_log=_flag(given, LOG_CLEANUP, "true"),
        id_field=_path(given, ID_FIELD),
        time_field=_path(given, TIME_FIELD),
        ttl_ms=_ttl(given),
        ttl_column=given.get(TTL_COLUMN, ""),
        bloom_filters=_names(given, BLOOM_FILTERS),
        merge_query=given.get(MERGE_QUERY, "").strip(),
        cluster_by=_clustering(given),
        unreadable_time=_choice(given, UNREADABLE_TIME, ARRIVAL, REJECT),
        future_time=_choice(given, FUTURE_TIME, KEEP, ARRIVAL, REJECT),
        properties_as=_choice(given, PROPERTIES_AS, TEXT, VARIANT),
    )


def names_text(names: Sequence[str]) -> str:
    """Return a list of names as a property's value."""
    return orjson.dumps(list(names)).decode()


def _names(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        value: Any = orjson.loads(given.get(name, "[]"))
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Invalid(f"property {name}: expected a JSON list of names")
    return tuple(value)


def _clustering(given: Mapping[str, str]) -> tuple[str, ...]:
    columns = _names(given, CLUSTER_BY)
    if len(columns) > CLUSTER_COLUMNS_MAX:
        raise Invalid(f"property {CLUSTER_BY}: expected at most {CLUSTER_COLUMNS_MAX} columns, got {len(columns)}")
    return columns


def _path(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    if name not in given:
        return ()
    parts = tuple(given[name].split("."))
    if not all(part and part == part.strip() for part in parts):
        msg = f"property {name}: {given[name]!r:.100} is not a path of field names; use for example 'data.order.id'"
        raise Invalid(msg)
    return parts


def _choice(given: Mapping[str, str], name: str, default: str, *others: str) -> str:
    text = given.get(name, default).lower()
    if text not in (default, *others):
        names = ", ".join(map(repr, (default, *others)))
        raise Invalid(f"property {name}: {given[name]!r} is not valid; use one of {names}")
    return text


def _duration(given: Mapping[str, str], name: str, default: str) -> int:
    lasts_ms = interval_ms(given.get(name, default))
    if lasts_ms is None:
        msg = f"property {name}: {given.get(name)!r} is not a duration; use for example '1 hour' or 'interval 7 days'"
        raise Invalid(msg)
    return lasts_ms


def _ttl(given: Mapping[str, str]) -> int:
    lasts_ms = _duration(given, TTL, "0 days")
    if TTL in given and not lasts_ms:
        raise Invalid(f"property {TTL}: rows must be kept for some time; use for example '90 days'")
    return lasts_ms


def _size(given: Mapping[str, str], name: str, default: str) -> int:
    match = _SIZE.match(given.get(name, default))
    if match is None or int(match[1]) == 0:
        raise Invalid(f"property {name}: {given.get(name)!r} is not a size; use for example '128 MB'")
    return int(match[1]) * _SIZES[(match[2] or "").lower()]


def _policy(given: Mapping[str, str]) -> str:
    text = given.get(CHECKPOINT_POLICY, "classic").lower()
    if text not in ("classic", "v2"):
        raise Invalid(f"property {CHECKPOINT_POLICY}: {given[CHECKPOINT_POLICY]!r} is not valid; use 'classic' or 'v2'")
    return text


def _flag(given: Mapping[str, str], name: str, default: str = "false") -> bool:
    text = given.get(name, default).lower()
    if text not in ("true", "false"):
        raise Invalid(f"property {name}: {given[name]!r} is not valid; use 'true' or 'false'")
    return text == "true"


def _positive(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise Invalid(f"property {name}: {text!r} is not a whole number above 0")
    return int(text)


def _indexed(given: Mapping[str, str]) -> int:
    text = given.get(INDEXED_COLUMNS, "32")
    if text == "-1":
        return 1 << 30
    if not text.isdecimal():
        raise Invalid(f"property {INDEXED_COLUMNS}: {text!r} is not a number of columns, or -1 for all")
    return int(text)
