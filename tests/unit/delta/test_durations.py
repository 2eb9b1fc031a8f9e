"""How long something lasts, and how long ago a moment was, as people write it."""

from __future__ import annotations

import pytest

from alluvia.clock import ManualClock
from alluvia.delta.arguments import duration_ms, interval_ms, moment_ago, offset_ms
from alluvia.errors import Invalid


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("30d", 2_592_000_000),
        (" 12 h ", 43_200_000),
        ("1 week", 604_800_000),
        ("interval 7 days", 604_800_000),
        ("INTERVAL 5 Milliseconds", 5),
        ("0", 0),
        (0, 0),
        ("365000 days", 31_536_000_000_000),
    ],
)
def test_durations(given: object, ms: int) -> None:
    assert duration_ms(given) == ms


@pytest.mark.parametrize(
    "given", ["", "1", "-1 day", "1 day ago", "1 month", "1 hour 2 minutes", "365001d", f"{'9' * 5000}d"]
)
def test_what_is_no_duration_is_none(given: str) -> None:
    assert duration_ms(given) is None


@pytest.mark.parametrize("text", ["7d", "1 h", "7days", "1 day 2 hours", "0"])
def test_properties_take_the_words_that_other_writers_know(text: str) -> None:
    assert interval_ms(text) is None


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
    with pytest.raises(Invalid, match=r"offset: .* is not a time ago|is in the future"):
        offset_ms(offset)  # type: ignore[arg-type]


def test_a_moment_before_1970_is_refused() -> None:
    with pytest.raises(Invalid, match="longer ago than any table"):
        moment_ago("999999999 weeks ago", ManualClock())
