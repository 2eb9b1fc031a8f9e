"""An empty lake, with what runs texts on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(tmp_path)
