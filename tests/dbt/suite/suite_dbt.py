"""dbt's own suite: each of its classes, with the fixtures and expectations of `adapted.py`, but for those left out."""

from __future__ import annotations

import os

import pytest

from tests.dbt.suite.adapted import ADAPTED
from tests.dbt.suite.classes import every_class, key_of
from tests.dbt.suite.conftest import OVER_HTTP
from tests.dbt.suite.left_out import CLONES, HELPER, LEFT_OUT, LEFT_OUT_OVER_HTTP, QUOTES, REASONS, ZONED
from tests.dbt.suite.parts import PARTS

CHOSEN = PARTS.get(os.environ.get("ALLUVIA_DBT_PART", "all"))
FOUND = {key_of(each): each for each in every_class()}


def test_every_name_is_of_a_class() -> None:
    named = {*LEFT_OUT, *LEFT_OUT_OVER_HTTP, *ADAPTED, *(key for keys in PARTS.values() for key in keys)}
    assert named <= set(FOUND)
    assert not set(LEFT_OUT) & set(ADAPTED)


def test_helpers_are_left_out_for_the_classes_that_inherit_them() -> None:
    for key in REASONS[HELPER]:
        assert any(issubclass(each, FOUND[key]) for name, each in FOUND.items() if name != key)


@pytest.mark.parametrize(
    ("reason", "shown_by"),
    [
        (CLONES, "test_dbt_clone.BaseClonePossible"),
        (ZONED, "test_current_timestamp.BaseCurrentTimestampAware"),
        (QUOTES, "test_escape_single_quotes.BaseEscapeSingleQuotesQuote"),
    ],
)
def test_the_opposite_of_a_class_left_out_is_in_the_suite(reason: str, shown_by: str) -> None:
    assert REASONS[reason]
    assert shown_by in FOUND
    assert shown_by not in LEFT_OUT


for key, each in FOUND.items():
    if OVER_HTTP and key in LEFT_OUT_OVER_HTTP:
        continue
    if key not in LEFT_OUT and (CHOSEN is None or key in CHOSEN):
        name = "Test_" + key.replace(".", "_")
        globals()[name] = type(name, (*ADAPTED.get(key, ()), each), {"__module__": __name__, "__test__": True})
