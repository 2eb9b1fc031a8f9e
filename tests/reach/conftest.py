from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import TIMES
from tests.reach.delta_spark import DeltaSpark, running_delta_spark
from tests.reach.made_by_spark import BySpark, SparksTable, make, opened, unpack
from tests.reach.spark_tables import Made


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSpark]:
    """One Spark with Delta for each test process."""
    with running_delta_spark() as spark:
        yield spark


@pytest.fixture
def by_spark(request: pytest.FixtureRequest, tmp_path: Path) -> BySpark:
    """Gives tables that Spark made: from the archive, or from Spark itself in `make deep`."""

    def get(made: Made) -> SparksTable:
        if TIMES == 1:
            unpack(made, tmp_path)
        else:
            make(made, request.getfixturevalue("delta_spark"), tmp_path)
        return opened(tmp_path)

    return get
