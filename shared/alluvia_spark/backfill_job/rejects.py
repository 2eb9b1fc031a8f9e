"""The rejects of a job as rows of a table's `_rejects`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from alluvia.events.ingest.values import Reject


def reject_rows(rejects: Sequence[Reject], schema: pa.Schema, arrival_us: int) -> pa.Table:
    """Return rejects as rows of the rejects table's schema."""
    columns: dict[str, Sequence[object]] = {
        "event_id": [reject.event_id for reject in rejects],
        "received_at": [arrival_us] * len(rejects),
        "reason": [reject.reason for reject in rejects],
        "position": [reject.position for reject in rejects],
        "raw": [reject.raw for reject in rejects],
        "given": [reject.given for reject in rejects],
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
