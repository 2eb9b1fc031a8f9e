from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reach.delta_spark import DeltaSpark, running_delta_spark


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSpark]:
    """One Spark with Delta for each test process."""
    with running_delta_spark() as spark:
        yield spark
