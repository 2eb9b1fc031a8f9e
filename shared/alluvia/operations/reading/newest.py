"""When the newest event of a table arrived, from the log alone."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_runs import RECEIVED_AT
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.column_bounds import bounds_of


def newest_arrival(snapshot: Snapshot) -> datetime | None:
    """Return the greatest bound of `received_at` in the statistics, to the second.

    None for a table without that column or without events. Files of other writers may have no statistics, and the
    newest rows may have been deleted since.
    """
    if RECEIVED_AT not in snapshot.schema.names or RECEIVED_AT in snapshot.partition_columns:
        return None
    kind = snapshot.schema.field(RECEIVED_AT).type
    if not pa.types.is_timestamp(kind):
        return None
    path = (snapshot.physical_name(RECEIVED_AT),)
    files = snapshot.files
    open_rows(files.parts)
    highs = []
    for section in files.sections:
        high, shown = bounds_of(section, [(path, kind)])[path].high, files.shown(section)
        highs.append(pc.max(high if shown is None else high.filter(shown)).as_py())
    newest = max((each for each in highs if each is not None), default=None)
    return None if newest is None else newest.replace(microsecond=0)
