"""What a server holds between calls: for one caller each, within bounds, and not for ever."""

from __future__ import annotations

import pytest

from alluvia.clock import ManualClock
from alluvia.flight.handles import HELD_MS_MAX, HandleBounds, Handles
from alluvia.flight.statuses import HandleNotFound
from alluvia.serverless.http import TooManyRequests


def test_a_handle_is_for_its_caller(clock: ManualClock) -> None:
    handles: Handles[str] = Handles("thing", clock)
    handle = handles.add("ann", "hers")
    assert (handles.get("ann", handle), handles.of("ann"), handles.of("bob")) == ("hers", ["hers"], [])
    for caller, asked in (("bob", handle), ("ann", b""), ("ann", handle[:-1])):
        with pytest.raises(HandleNotFound, match="no such thing"):
            handles.get(caller, asked)
        with pytest.raises(HandleNotFound):
            handles.take(caller, asked)
    assert handles.take("ann", handle) == "hers"
    with pytest.raises(HandleNotFound):
        handles.get("ann", handle)


def test_what_a_caller_used_least_recently_makes_room(clock: ManualClock) -> None:
    gone: list[str] = []
    handles: Handles[str] = Handles("thing", clock, gone.append, HandleBounds(of_caller=2))
    first, second = handles.add("ann", "1"), handles.add("ann", "2")
    handles.add("bob", "his")
    handles.get("ann", first)
    handles.add("ann", "3")
    assert gone == ["2"]
    assert handles.get("ann", first) == "1"
    with pytest.raises(HandleNotFound):
        handles.get("ann", second)


def test_the_bytes_of_a_caller_are_bounded(clock: ManualClock) -> None:
    gone: list[str] = []
    handles: Handles[str] = Handles("thing", clock, gone.append, HandleBounds(of_caller_bytes=100))
    for number in range(4):
        handles.add("ann", str(number), 40)
    assert gone == ["0", "1"]


@pytest.mark.parametrize("bounds", [HandleBounds(total=2), HandleBounds(total_bytes=25)])
def test_callers_do_not_push_out_others(clock: ManualClock, bounds: HandleBounds) -> None:
    handles: Handles[str] = Handles("thing", clock, bounds=bounds)
    kept = handles.add("ann", "1", 10), handles.add("ann", "2", 10)
    with pytest.raises(TooManyRequests, match="as many things as it may"):
        handles.add("bob", "his", 10)
    assert [handles.get("ann", each) for each in kept] == ["1", "2"]


def test_what_is_not_used_for_an_hour_goes(clock: ManualClock) -> None:
    gone: list[str] = []
    handles: Handles[str] = Handles("thing", clock, gone.append)
    used, unused = handles.add("ann", "used"), handles.add("bob", "unused")
    clock.advance(HELD_MS_MAX / 1000)
    handles.get("ann", used)
    clock.advance(0.001)
    handles.add("ann", "new")
    assert gone == ["unused"]
    with pytest.raises(HandleNotFound):
        handles.get("bob", unused)
    handles.close()
    assert sorted(gone) == ["new", "unused", "used"]


def test_a_value_that_grows_makes_others_of_its_caller_go(clock: ManualClock) -> None:
    gone: list[str] = []
    handles: Handles[str] = Handles("thing", clock, gone.append, HandleBounds(of_caller_bytes=100, total_bytes=120))
    first, _ = handles.add("ann", "1", 10), handles.add("ann", "2", 40)
    his = handles.add("bob", "his", 20)
    handles.resize("ann", first, 70)
    assert gone == ["2"]
    for caller in ("bob", "eve"):
        with pytest.raises(HandleNotFound):
            handles.resize(caller, first, 1)
    with pytest.raises(TooManyRequests, match="as many things as it may"):
        handles.resize("bob", his, 60)
    handles.resize("bob", his, 50)
    assert (handles.get("ann", first), handles.get("bob", his), gone) == ("1", "his", ["2"])
