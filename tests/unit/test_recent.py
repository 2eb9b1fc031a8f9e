"""What was looked up last."""

from __future__ import annotations

from alluvia.recent import Recent


def test_the_values_used_last_are_kept() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    assert recent.get("a") == 1
    recent.keep("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
    recent.keep("a", 4)
    assert (recent.get("a"), recent.get("c")) == (4, 3)
