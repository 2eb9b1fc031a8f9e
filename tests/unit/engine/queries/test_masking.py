"""What the log keeps of conditions: their form, and none of their values."""

from __future__ import annotations

import pytest

from alluvia.engine.queries.tokens import masked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id < 3", "id < ?"),
        ("user_id='42' OR name IN ('a', 'b''c')", "user_id=? OR name IN (?, ?)"),
        ("d > DATE'2020-01-01' AND x = E'it\\'s 1' AND b = x'ff'", "d > DATE? AND x = ? AND b = ?"),
        ("price > 1_000.5e3 AND n <> .5 AND a1 = -0x1F", "price > ? AND n <> ? AND a1 = -?"),
        ("x = $$it's$$ OR x = $tag$a $$ b$tag$", "x = ? OR x = ?"),
        ("\"it's 1\" = 'x' -- was '42'\n AND /* 43 */ e = 1", '"it\'s 1" = ? AND e = ?'),
        ("name = 'x' /* a /* b */ 42 */ AND \"d\" = 1e-5", 'name = ? AND "d" = ?'),
        ("x = 5and y=0b1 AND z = B'1'", "x = ? y=? AND z = ?"),
        ("new.amount > 5 AND é = 'ü'", "new.amount > ? AND é = ?"),
    ],
)
def test_values_and_comments_go(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize("text", ["x = 'open 42", "name = 'x' /* a /* b */ 42", "x = $t$ 42"])
def test_nothing_is_shown_of_what_is_unclear(text: str) -> None:
    assert masked(text) == "?"
