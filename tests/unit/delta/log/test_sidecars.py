"""What a sidecar's maker says of it, where that cannot be trusted."""

from __future__ import annotations

import pytest

from alluvia.delta.log.files.sidecars import FACTS_TAG, SidecarFacts


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", "{}", '{"kind":"add","rows":"8","firstKey":"a","lastKey":"b"}',
             '{"kind":"add","rows":8,"firstKey":"a","lastKey":"b","statistics":5}',
             '{"kind":"add","rows":8,"firstKey":"a","lastKey":"b","size":"5"}',
             '{"kind":"add","rows":-1,"firstKey":"a","lastKey":"b"}']
)  # fmt: skip
def test_facts_that_make_no_sense_are_none(text: str) -> None:
    assert SidecarFacts.from_tags({FACTS_TAG: text}) is None
    assert SidecarFacts.from_tags({}) is None
