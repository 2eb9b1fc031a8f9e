"""Checks of one commit, and of consecutive commits. Pure. Source: Delta protocol, "Delta Log Entries"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import orjson

from alluvia.delta.log.checkpoints.putting import parse_last_checkpoint
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.paths import LAST_CHECKPOINT, LOG_FOLDER, commit_name
from alluvia.lazy_dataclasses import dataclass
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


_ENGINE = "Alluvia/"
_INFO = b'"commitInfo"'
_SKEW_MS_MAX = 24 * 60 * 60 * 1000


@dataclass(slots=True)
class CommitChecks:
    """Checks commits in order. It keeps the transaction ids of all, and the in-commit timestamp of the last."""

    findings: Findings
    now_ms: int
    _transactions: dict[str, int] = field(default_factory=dict)
    _last: tuple[int, int] | None = None
    """Version and in-commit timestamp of the last commit that had one."""

    def check(self, commit: CommitActions, data: bytes, *, timed: bool) -> None:
        """Check a commit of some bytes; `timed` if its table has in-commit timestamps from this version on."""
        self._check_clashes(commit)
        self._check_transaction(commit, data)
        self._check_time(commit, data, timed=timed)
        if str(commit.info.get("engineInfo", "")).startswith(_ENGINE):
            self._check_metrics(commit)

    def _check_clashes(self, commit: CommitActions) -> None:
        """A commit may say one thing of each file, application and domain."""
        removed = {remove.key for remove in commit.removes}
        groups: list[tuple[str, list[str], list[str]]] = [
            ("adds", [add.key for add in commit.adds], [add.path for add in commit.adds]),
            ("removes", [remove.key for remove in commit.removes], [remove.path for remove in commit.removes]),
        ]
        for what, keys, paths in groups:
            counts = Counter(keys)
            for path in dict.fromkeys(path for key, path in zip(keys, paths, strict=True) if counts[key] > 1):
                self._clash(commit, f"{what} data file {path} more than once", path)
        for add in commit.adds:
            if add.key in removed:
                self._clash(commit, f"both adds and removes data file {add.path}", add.path)
        for app_id, count in Counter(txn.app_id for txn in commit.txns).items():
            if count > 1:
                self._clash(commit, f"records transaction {app_id!r} {count} times")
        for name, count in Counter(domain.domain for domain in commit.domains).items():
            if count > 1:
                self._clash(commit, f"sets the metadata domain {name!r} {count} times")

    def _clash(self, commit: CommitActions, what: str, file: str | None = None) -> None:
        self.findings.add("actions-clash", f"{commit_name(commit.version)} {what}", version=commit.version, file=file)

    def _check_transaction(self, commit: CommitActions, data: bytes) -> None:
        """Each version is the work of one transaction, and of no other version's."""
        lines = sum(map(_is_info, data.splitlines())) if data.count(_INFO) > 1 else 1
        if lines > 1:
            self._clash(commit, f"holds {lines} commitInfo actions, as if two commits had become one")
        txn_id = commit.info.get("txnId")
        if not isinstance(txn_id, str):
            return
        if txn_id in self._transactions:
            first = self._transactions[txn_id]
            msg = f"version {commit.version} was committed by the same transaction as version {first} ({txn_id})"
            self.findings.add("transaction-repeated", msg, version=commit.version)
        self._transactions.setdefault(txn_id, commit.version)

    def _check_time(self, commit: CommitActions, data: bytes, *, timed: bool) -> None:
        if not timed:
            self._last = None
            return
        name, version = commit_name(commit.version), commit.version
        time = commit.info.get("inCommitTimestamp")
        if type(time) is not int or not 0 <= time < 1 << 63:
            msg = f"{name} has no in-commit timestamp, which its table requires"
            self.findings.add("timestamp-missing", msg, version=version)
            return
        if not _is_info(data):
            msg = f"{name} does not begin with its commitInfo, where readers look for the timestamp"
            self.findings.add("commit-info-not-first", msg, version=version)
        if self._last is not None and time <= self._last[1]:
            msg = f"version {version} has the timestamp {time}, not later than {self._last[1]} of {self._last[0]}"
            self.findings.add("timestamp-not-increasing", msg, version=version)
        elif time > self.now_ms + _SKEW_MS_MAX and (self._last is None or self._last[1] <= self.now_ms + _SKEW_MS_MAX):
            msg = (
                f"version {version} has the timestamp {time}, more than a day from now; every later one must be greater"
            )
            self.findings.add("timestamp-in-future", msg, version=version)
        self._last = (version, time)

    def _check_metrics(self, commit: CommitActions) -> None:
        """Our own commits say how many files come and go: a commit that was cut at the end of a line has fewer."""
        metrics = commit.info.get("operationMetrics")
        for name, actions in (("numFiles", commit.adds), ("numRemovedFiles", commit.removes)):
            said = metrics.get(name) if isinstance(metrics, dict) else None
            if said is not None and said != str(len(actions)):
                what = "adds" if name == "numFiles" else "removes"
                msg = f"{commit_name(commit.version)} {what} {len(actions)} files, but says that it {what} {said}"
                self.findings.add("commit-incomplete", msg, version=commit.version)


def _is_info(text: bytes) -> bool:
    """Whether a text begins with a commitInfo action."""
    return text.lstrip().removeprefix(b"{").lstrip().startswith(_INFO)
