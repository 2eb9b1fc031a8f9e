"""A row with a key."""

from __future__ import annotations

from typing import Any


def row(number: int, name: str = "new", place: str = "a") -> dict[str, Any]:
    return {"id": number, "name": name, "place": place}
