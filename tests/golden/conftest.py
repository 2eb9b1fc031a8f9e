from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.light_engines import light_engines

PLACE = "/alluvia-golden-place"
"""What absolute paths in the archive start with, in place of the folder that it is unpacked into."""
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden tables of the reference implementation: a folder a case, with `delta` and, mostly, `expected`."""
    return _unpacked("golden_tables.tar.gz", tmp_path_factory)


@pytest.fixture(scope="session")
def spark_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that delta-spark wrote (see `spark_tables.py`), with the rows of every version as Spark reads them."""
    folder = _unpacked("spark_tables.tar.gz", tmp_path_factory)
    for commit in folder.rglob("_delta_log/*.json"):
        text = commit.read_text()
        if PLACE in text:
            commit.write_text(text.replace(PLACE, str(folder)))
    return folder


@pytest.fixture(scope="session")
def variant_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with variants that delta-spark wrote (see `variant_tables.py`), with their rows as Spark shows them."""
    return _unpacked("variant_tables.tar.gz", tmp_path_factory)


@pytest.fixture
def light_queries() -> Iterator[None]:
    """For tests of many queries on tables that other tests query in a process of its own."""
    with light_engines():
        yield


def _unpacked(archive: str, factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp(archive.partition(".")[0])
    with tarfile.open(HERE / archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
