"""The page of pipelines: its files are written, and its blocks run, in their order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE, _ = (Path(__file__).parents[2] / "docs" / "PIPELINES.md").read_text("utf-8").split("\n## On Spark\n")
"""The page without its last section, whose block `tests/spark/test_pipelines.py` runs."""
BLOCK = re.compile(r"^```(sql|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_page_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for kind, text in BLOCK.findall(GUIDE):
        if kind == "python":
            exec(compile(text, "PIPELINES.md", "exec"), names)
            continue
        file = Path(text.partition("\n")[0].removeprefix("-- "))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
