"""The distribution: what is in it, and that it leaves the packages of dbt to dbt."""

from __future__ import annotations

import ast
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from alluvia.version import __version__
from tests.dbt.running import ADAPTER
from tests.package.conftest import build_wheel

OURS = ("dbt/adapters/alluvia/", "dbt/include/alluvia/")


def test_the_adapter_has_the_version_of_the_library_and_needs_that_one() -> None:
    """Not a later one: MAY_USE has modules that promise nothing from version to version."""
    assert f'version = "{__version__}"' in (ADAPTER / "dbt" / "adapters" / "alluvia" / "__version__.py").read_text()
    needs = tomllib.loads((ADAPTER / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"alluvia[aws,client]=={__version__}" in needs


MAY_USE = {
    "alluvia",
    "alluvia.api.served_lake",
    "alluvia.engine.duck.literals",
    "alluvia.errors",
    "alluvia.query.limits",
    "alluvia.query.parameters",
    "alluvia.sql.fitting",
    "alluvia.sql.showing",
    "alluvia.table_names",
}


def imported(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""


def test_the_adapter_uses_the_api_and_what_it_needs_of_types_names_and_limits() -> None:
    """import-linter cannot tell, since dbt, whose packages the adapter joins, is not installed beside it."""
    assert {name for name in imported(ADAPTER) if name.partition(".")[0] == "alluvia"} == MAY_USE


@pytest.mark.slow
def test_the_wheel_holds_the_adapter_and_its_macros(tmp_path: Path) -> None:
    info = f"dbt_alluvia-{__version__}.dist-info/"
    wheel = zipfile.ZipFile(build_wheel(ADAPTER, tmp_path))
    names = [name for name in wheel.namelist() if not name.startswith(info)]
    there = {
        path.relative_to(ADAPTER).as_posix()
        for path in (ADAPTER / "dbt").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(names) == there
    assert all(name.startswith(OURS) for name in names)  # the packages above belong to dbt-core
    needs = wheel.read(f"{info}METADATA").decode()
    assert f"Requires-Dist: alluvia[aws,client]=={__version__}" in needs
    assert "Requires-Dist: dbt-core" in needs
