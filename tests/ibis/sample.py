"""A lake of events, as Python has it: what answers are compared with."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

import alluvia

START = datetime(2026, 11, 1, 9, 30, 15, 250_000, tzinfo=UTC)
COLUMNS: dict[str, Any] = {
    "id": "long",
    "at": "timestamp",
    "event": "string",
    "user": "integer",
    "amount": "decimal(10,2)",
    "score": "double",
    "tags": pa.list_(pa.string()),
    "device": pa.struct([("os", pa.string()), ("version", pa.int64())]),
    "counts": pa.map_(pa.string(), pa.int64()),
    "day": "date",
    "local": "timestamp_ntz",
    "raw": "binary",
    "ok": "boolean",
}
ROWS: list[dict[str, Any]] = [
    {
        "id": n,
        "at": START + timedelta(days=n % 5, hours=n),
        "event": ("view", "click", "buy")[n % 3],
        "user": n % 4,
        "amount": None if n % 3 < 2 else Decimal(n) + Decimal("0.25"),
        "score": n / 7,
        "tags": ["new", "o'k"][: n % 3],
        "device": {"os": "linux" if n % 2 else "mac", "version": n},
        "counts": [("seen", n)],
        "day": date(2026, 11, 1 + n % 5),
        "local": datetime(2026, 11, 1, n),
        "raw": bytes([n, 0]),
        "ok": n % 5 > 0,
    }
    for n in range(20)
]
USERS = [{"user": n, "name": name} for n, name in enumerate(("ada", "bob", "eve"))]


def fill(lake: alluvia.Lake) -> None:
    lake.create_table("events", COLUMNS, partition_by=["day(at)"]).append(ROWS[:10])
    lake["events"].append(ROWS[10:])
    lake.create_table("users", {"user": "integer", "name": "string"}).append(USERS)
    lake.sql("CREATE VIEW buys AS SELECT * FROM events WHERE event = 'buy'")


def rows_of(expr: Any) -> list[dict[str, Any]]:
    """Return the rows of an expression."""
    found: list[dict[str, Any]] = expr.to_pyarrow().to_pylist()
    return found
