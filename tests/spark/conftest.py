from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import alluvia
import alluvia_spark
from alluvia.api.lake import Lake
from alluvia_spark.session import session
from tests.spark import faults
from tests.spark.quick import SETTINGS


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark for each test process."""
    cloudpickle.register_pickle_by_value(faults)  # type: ignore[no-untyped-call]  # the executors need not find the tests
    with session("alluvia tests", cores=2, settings=SETTINGS) as started:
        yield started


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    """Spark, with the data source of Alluvia."""
    alluvia_spark.register(spark)
    return spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return alluvia.connect(str(tmp_path / "lake"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process take the tests that need Spark. Those of the Spark with Delta may run in another meanwhile."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.slow)
