"""Names of the files of a Delta log, and what they mean. Pure.

Source: Delta protocol, "Delta Log Entries", "Checkpoints" and "Last Checkpoint File".
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from alluvia.lazy_dataclasses import dataclass
from alluvia.store.uris import canonical_path as canonical_path  # noqa: PLC0414

LOG_FOLDER = "_delta_log/"
LAST_CHECKPOINT = LOG_FOLDER + "_last_checkpoint"
SIDECAR_FOLDER = LOG_FOLDER + "_sidecars/"

VERSION_MAX = 2**63 - 1
"""Delta's versions are long integers."""
_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_SINGLE = re.compile(r"(\d{20})\.checkpoint\.parquet", re.ASCII)
_MULTI = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet", re.ASCII)
_ABSOLUTE = re.compile(r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)")
_OWN = re.compile(r"(^|/)part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet$")
_SAFE = "/=!$&'()*+,;@~-._"
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommitFile:
    """A JSON commit."""

    version: int
    name: str


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a checkpoint: `part` of `parts` (1 of 1 for a single file); `v2` if it carries a UUID."""

    version: int
    name: str
    part: int = 1
    parts: int = 1
    v2: bool = False


def decode_path(uri: str) -> str:
    """Path of a data file from the form it has in the log."""
    return unquote(uri) if "%" in uri else uri


def encode_path(path: str) -> str:
    """Return the form that a data file's path has in the log."""
    return quote(path, safe=_SAFE + ":" if _ABSOLUTE.match(path) else _SAFE)


def is_absolute(path: str) -> bool:
    """Whether a decoded path is absolute, and not relative to the table."""
    return _ABSOLUTE.match(path) is not None


def folder_of(path: str) -> str:
    """Return the folder below the root, ending in `/`, in which a file may be put next to another; "" for the root.

    A file elsewhere belongs to another table: nothing is written next to it.
    """
    steps = [step for step in path.split("/")[:-1] if step not in ("", ".")]
    return "" if is_absolute(path) or ".." in steps else "".join(f"{step}/" for step in steps)


def is_own_name(path: str) -> bool:
    """Whether a data file has a name as this library gives them: no other known writer does."""
    return _OWN.search(path) is not None


def commit_name(version: int) -> str:
    """Path of a commit, below the table's root."""
    return f"{LOG_FOLDER}{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Path of a single-file checkpoint, below the table's root."""
    return f"{LOG_FOLDER}{version:020d}.checkpoint.parquet"


def v2_checkpoint_name(version: int, unique: str) -> str:
    """Path of a v2 checkpoint, below the table's root; `unique` is a UUID."""
    return f"{LOG_FOLDER}{version:020d}.checkpoint.{unique}.parquet"


def version_prefix(version: int) -> str:
    """Return the path that sorts right before every log file of a version."""
    return f"{LOG_FOLDER}{version:020d}"


def parse_name(name: str) -> CommitFile | CheckpointFile | None:
    """What a file directly below `_delta_log/` is; None for files that readers skip."""
    file: CommitFile | CheckpointFile | None = None
    if match := _COMMIT.fullmatch(name):
        file = CommitFile(int(match[1]), name)
    elif match := _SINGLE.fullmatch(name):
        file = CheckpointFile(int(match[1]), name)
    elif match := _MULTI.fullmatch(name):
        file = CheckpointFile(int(match[1]), name, int(match[2]), int(match[3]))
    elif match := _V2.fullmatch(name):
        file = CheckpointFile(int(match[1]), name, v2=True)
    return file if file is not None and file.version <= VERSION_MAX else None


def sidecar_name(unique: str) -> str:
    """Return the path of a new sidecar, below the table's root."""
    return f"{SIDECAR_FOLDER}{unique}.parquet"
