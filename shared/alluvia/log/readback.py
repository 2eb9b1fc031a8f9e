"""What a commit's key holds after an unclear answer, judged by the transaction id in it. Pure."""

from __future__ import annotations

import enum

from alluvia.log.commit import CommitActions


class Readback(enum.Enum):
    """Whose commit stands under the key."""

    OURS = "ours"
    THEIRS = "theirs"
    ABSENT = "absent"


def classify(found: CommitActions | None, txn_id: str) -> Readback:
    """Judge what was read back: ours if it carries our transaction's id, wherever the answer to the PUT went."""
    if found is None:
        return Readback.ABSENT
    return Readback.OURS if found.info.get("txnId") == txn_id else Readback.THEIRS
