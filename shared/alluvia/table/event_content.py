"""What an event says, as a short hash of its row: two deliveries of an event have the same, two events of one id not.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from alluvia.table.id_runs import CONTENT_BYTES

EVENT_ID = "event_id"
SOURCE = "source"
RECEIVED_AT = "received_at"
TS = "ts"


def content_hashes(rows: pa.Table) -> list[bytes]:
    """Return the content hash of each row, made of its columns but for the id and what a delivery adds.

    That is `received_at`, and `ts` where it is the same, since then the event came without a time of its own. A null
    counts like a missing column, so that a column that is added to the table changes no hash.
    """
    return [_hash(row) for row in rows.to_pylist()]


def _hash(row: dict[str, Any]) -> bytes:
    own = {name: value for name, value in row.items() if name not in (EVENT_ID, RECEIVED_AT)}
    if TS in own and own[TS] == row.get(RECEIVED_AT):
        del own[TS]
    return blake2b(repr(_plain(own)).encode(), digest_size=CONTENT_BYTES).digest()


def _plain(value: Any) -> Any:
    """Return a value without its nulls, fields in the order of their names."""
    if isinstance(value, Mapping):
        return [(name, _plain(value[name])) for name in sorted(value) if value[name] is not None]
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
