"""Checks by the names of a log's files: missing commits, and whether `_last_checkpoint` is correct. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from alluvia.delta.log.checkpoints.hint import parse_last_checkpoint
from alluvia.delta.log.paths import LAST_CHECKPOINT, LOG_FOLDER
from alluvia.verify.objects import Objects
from alluvia.verify.report import Findings


def check_names(objects: Objects, findings: Findings) -> None:
    """Report commits that no checkpoint supports any more, and checkpoints that lack a part."""
    oldest = min(objects.checkpoints, default=None)
    if 0 not in objects.commits and oldest is not None:
        expired = [version for version in objects.commits if version < oldest]
        if expired:
            msg = f"{len(expired)} commits below version {oldest}, the oldest that can be read, are still in the log"
            findings.add("commits-expired", msg, version=min(expired))
    for files in objects.incomplete:
        msg = f"checkpoint {LOG_FOLDER}{files[0].name} has {len(files)} of {files[0].parts} parts; readers skip it"
        findings.add("checkpoint-incomplete", msg, version=files[0].version, file=LOG_FOLDER + files[0].name)


def check_commits(objects: Objects, oldest: int, findings: Findings) -> None:
    """Report missing commits; `oldest` is the oldest version that can be read, by the table's own record.

    Clean-up deletes commits from the oldest on, but those of versions that are kept: so what is missing below the
    oldest version is not damage, as long as a checkpoint replaces it.
    """
    for first, last in missing_commits(objects):
        if last < oldest and last + 1 in objects.checkpoints:
            continue
        what = f"commit {first} is" if first == last else f"commits {first} to {last} are"
        msg = f"{what} missing from the log, which goes on to version {objects.newest}"
        findings.add("commit-missing", msg, version=first)


def missing_commits(objects: Objects) -> Iterator[tuple[int, int]]:
    """Yield the first and last version of each run of missing commits."""
    commits = sorted(objects.commits)
    if not commits:
        return
    before = min(objects.newest_checkpoint, commits[0] - 1)
    for version in [*commits, objects.newest + 1]:
        if version > before + 1:
            yield before + 1, version - 1
        before = version


def check_hint(data: bytes | None, objects: Objects, adds: Mapping[int, set[int]], findings: Findings) -> None:
    """Report what is wrong with `_last_checkpoint`; `adds` has the numbers of live files of checkpoints, by version."""
    if data is None:
        if objects.checkpoints:
            msg = f"{LAST_CHECKPOINT} is missing, so that readers must list the whole log"
            findings.add("last-checkpoint-missing", msg, file=LAST_CHECKPOINT)
        return
    hint = parse_last_checkpoint(data)
    if hint is None:
        msg = f"{LAST_CHECKPOINT} cannot be read, so that readers must list the whole log"
        findings.add("last-checkpoint-unreadable", msg, file=LAST_CHECKPOINT)
        return
    wrong = _wrong_hint(orjson.loads(data), hint.version, objects)
    counts = adds.get(hint.version)
    if wrong is None and hint.files is not None and counts is not None and hint.files not in counts:
        wrong = f"says that checkpoint {hint.version} has {hint.files} data files; it has {max(counts)}"
    if wrong is not None:
        findings.add("last-checkpoint-wrong", f"{LAST_CHECKPOINT} {wrong}", version=hint.version, file=LAST_CHECKPOINT)


def hint_elsewhere(data: bytes | None, objects: Objects) -> int | None:
    """Return the version that `_last_checkpoint` names if the listing has no checkpoint of it; None otherwise."""
    hint = None if data is None else parse_last_checkpoint(data)
    return None if hint is None or hint.version in objects.checkpoints else hint.version


def _wrong_hint(body: Any, version: int, objects: Objects) -> str | None:
    known = objects.checkpoints.get(version)
    if known is None:
        return f"names checkpoint {version}, which is not there"
    parts = body.get("parts")
    if type(parts) is int and parts not in [len(files) for files in known]:
        return f"says that checkpoint {version} has {parts} parts"
    v2 = body.get("v2Checkpoint")
    path = v2.get("path") if isinstance(v2, dict) else None
    if isinstance(path, str) and LOG_FOLDER + path.rpartition("/")[2] not in objects.log:
        return f"names {path}, which is not there"
    return None
