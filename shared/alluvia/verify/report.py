"""What verifying finds, and how it is told. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import field

from alluvia.lazy_dataclasses import dataclass

SHOWN_MAX = 100
"""Findings of one kind that are told one by one; the others are only counted."""


class Severity(enum.Enum):
    """How bad a finding is: `damage` makes a table wrong or unreadable, a `warning` may, a `note` never does."""

    DAMAGE = "damage"
    WARNING = "warning"
    NOTE = "note"


_DAMAGE = """
    log-empty commit-missing commit-unreadable commit-incomplete commit-info-not-first actions-clash
    remove-of-absent-file transaction-repeated timestamp-missing timestamp-not-increasing protocol-missing
    metadata-missing protocol-unreadable schema-unreadable property-unreadable event-ids-unreadable
    checkpoint-unreadable checkpoint-lacks-file checkpoint-extra-file checkpoint-file-differs
    checkpoint-lacks-tombstone checkpoint-extra-tombstone checkpoint-statistics-differ checkpoint-metadata-differs
    checkpoint-protocol-differs checkpoint-transactions-differ checkpoint-domains-differ
    checkpoint-contradicts-commit file-live-and-removed last-checkpoint-wrong
    sidecar-missing sidecar-size-wrong sidecar-unreadable sidecar-facts-wrong
    window-index-unreadable window-index-wrong id-file-missing id-file-wrong claim-unreadable decision-unreadable
    transaction-incomplete kept-version-unreadable
    data-file-missing data-file-size-wrong data-file-unreadable data-file-listed-twice
    deletion-vector-missing deletion-vector-cut-off deletion-vector-unreadable deletion-vector-out-of-range
    statistics-unreadable statistics-impossible row-count-wrong bounds-wrong null-count-wrong footer-wrong
    columns-wrong column-misfit value-out-of-range partition-value-unreadable null-in-required-column constraint-broken
    change-file-missing change-file-size-wrong event-repeated kept-file-damaged file-outside-lake
"""
_WARNING = """
    last-checkpoint-unreadable last-checkpoint-missing checkpoint-incomplete window-index-missing
    tombstone-file-missing tombstone-time-wrong change-file-gone data-file-gone timestamp-in-future
    bounds-loose bounds-rounded data-file-unsupported constraint-unchecked event-repeated-later
    claim-unchecked
"""
_NOTE = """
    table-dropped commits-expired verification-incomplete orphan-files orphan-sidecars event-ids-shared claim-stands
"""
KINDS: Mapping[str, Severity] = {
    **dict.fromkeys(_DAMAGE.split(), Severity.DAMAGE),
    **dict.fromkeys(_WARNING.split(), Severity.WARNING),
    **dict.fromkeys(_NOTE.split(), Severity.NOTE),
}
"""Every kind of finding; their names do not change."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `version`, `file` (below the table's root) and `column` say where, if they apply."""

    kind: str
    severity: Severity
    message: str
    version: int | None = None
    file: str | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at, and all that it found, the worst first.

    `version` is the newest that the log names and `oldest_version` the oldest that can be read, None if none can;
    `versions` and `checkpoints` count those in the log, `files`, `rows` and `bytes` what the newest version holds
    (`rows` None where statistics do not say), `orphans` the files that no version names. `found` counts the findings of
    each kind: of one kind only the first 100 are in `findings`.
    """

    table: str
    full: bool
    version: int | None
    oldest_version: int | None
    versions: int
    checkpoints: int
    files: int
    rows: int | None
    bytes: int
    orphans: int
    orphan_bytes: int
    findings: tuple[Finding, ...] = ()
    found: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no damage was found."""
        return not self.count(Severity.DAMAGE)

    def count(self, severity: Severity) -> int:
        """Return how many findings there are of a severity."""
        return sum(number for kind, number in self.found.items() if KINDS[kind] is severity)


class Findings:
    """Gathers findings in the order in which they come."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._kept: list[Finding] = []

    def add(
        self, kind: str, message: str, *, version: int | None = None, file: str | None = None, column: str | None = None
    ) -> None:
        """Take one. Its severity is that of its kind."""
        self.found[kind] += 1
        if self.found[kind] <= SHOWN_MAX:
            self._kept.append(Finding(kind, KINDS[kind], message, version, file, column))

    def take(self, other: Findings) -> None:
        """Take those that were gathered elsewhere."""
        room = {kind: SHOWN_MAX - self.found[kind] for kind in other.found}
        for finding in other._kept:
            if room[finding.kind] > 0:
                self._kept.append(finding)
                room[finding.kind] -= 1
        self.found.update(other.found)

    def worst_first(self) -> tuple[Finding, ...]:
        """Return what was kept, by severity."""
        order = list(Severity)
        return tuple(sorted(self._kept, key=lambda finding: order.index(finding.severity)))
