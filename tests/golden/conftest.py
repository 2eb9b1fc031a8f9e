from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden tables of the reference implementation: a folder a case, with `delta` and, mostly, `expected`."""
    return _unpacked("golden_tables.tar.gz", tmp_path_factory)


def _unpacked(archive: str, factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp(archive.partition(".")[0])
    with tarfile.open(HERE / archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
