from __future__ import annotations

import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock


@pytest.fixture
def fix(lake: Lake, clock: ManualClock) -> Branch:
    fix = lake.branch("fix")
    clock.advance(1)
    return fix
