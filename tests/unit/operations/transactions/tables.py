"""Two tables of amounts."""

from __future__ import annotations

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction

NUMBERS = pa.schema([("n", pa.int64())])


def two(lake: Lake) -> None:
    for name in ("a", "b"):
        lake.create_table(name, NUMBERS).append([{"n": 1}, {"n": 2}])


def amounts(lake: Lake | LakeTransaction, name: str) -> list[int]:
    return sorted(lake.table(name).to_arrow()["n"].to_pylist())
