"""How long ago a moment was, as people write it."""

from __future__ import annotations

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.table.offsets import moment_ago, offset_ms


@pytest.mark.parametrize(
    ("offset", "ms"),
    [
        ("1 hour ago", 3_600_000),
        ("-90 minutes", 5_400_000),
        ("INTERVAL 2 days", 172_800_000),
        ("1 day 12 hours ago", 129_600_000),
        ("1 day, 12 hours ago", 129_600_000),
        (" 7d ", 604_800_000),
        ("1w", 604_800_000),
        ("0 s", 0),
        (-60, 60_000),
        (0, 0),
    ],
)
def test_offsets(offset: str | int, ms: int) -> None:
    assert offset_ms(offset) == ms


@pytest.mark.parametrize("offset", ["", "soon", "1", "1 month ago", "hour", "1 hour from now", 60, True, 1.5, None])
def test_what_is_no_offset_is_refused(offset: object) -> None:
    with pytest.raises(Invalid, match=r"offset: .* is not a time ago|has not come yet"):
        offset_ms(offset)  # type: ignore[arg-type]


def test_a_moment_before_1970_is_refused() -> None:
    with pytest.raises(Invalid, match="longer ago than any table"):
        moment_ago("999999999 weeks ago", ManualClock())
