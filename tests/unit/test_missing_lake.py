"""A lake at a path that does not exist says so wherever it is read, and begins with its first table."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.errors import TableNotFound


def test_reads_of_a_lake_that_does_not_exist_name_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "laek ü"
    lake = alluvia.connect(folder)
    told = f"there is no folder {folder}"
    assert repr(lake).endswith("', which does not exist yet>")
    with pytest.raises(TableNotFound, match=f"^there is no table 'clicks': {told}$"):
        lake["clicks"].count()
    with pytest.raises(TableNotFound, match=told):
        lake.sql("SELECT * FROM clicks")
    assert not folder.exists()


def test_a_lake_that_has_begun_names_no_folder(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    lake.create_table("a", {"n": "long"})
    assert repr(lake) == f"<Lake '{(tmp_path / 'lake').as_uri()}'>"
    with pytest.raises(TableNotFound, match=r"^there is no table 'clicks'$"):
        lake["clicks"].count()
