"""The dbt adapter, judged by dbt's own suite, in processes that have dbt.

A part of the suite runs here. `make dbt` runs all of it, over a lake that dbt opens and over a server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dbt.running import SUITE, with_dbt

ALL = os.environ.get("ALLUVIA_DBT") == "all"


@pytest.mark.slow
@pytest.mark.parametrize("over", ["path", "url"])
def test_dbts_own_suite_passes(tmp_path: Path, over: str) -> None:
    words = ["-c", str(SUITE / "pytest.ini"), "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "temporary")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--tb=short", str(SUITE / "suite_dbt.py")],
        cwd=tmp_path,
        env=with_dbt(ALLUVIA_DBT_PART="all" if ALL else over, ALLUVIA_DBT_OVER=over),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
