"""The guide to verifying names every kind of finding, and its examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import alluvia
from alluvia.verify.report import KINDS, Severity
from tests.unit.verify.damages import make_events

GUIDE = (Path(__file__).parents[2] / "docs" / "VERIFY.md").read_text()
HEADS = {
    "Damage to the log": Severity.DAMAGE,
    "Damage to files": Severity.DAMAGE,
    "Warnings": Severity.WARNING,
    "Notes": Severity.NOTE,
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_every_kind_of_finding_stands_in_the_table_of_its_severity() -> None:
    told = {}
    for head, severity in HEADS.items():
        table = GUIDE.partition(f"| {head} | |\n")[2].partition("\n\n")[0]
        for row in table.splitlines()[1:]:
            told.update(dict.fromkeys(re.findall(r"`([a-z-]+)`", row.split("|")[1]), severity))
    assert told == dict(KINDS)


def test_python_blocks_run() -> None:
    (text,) = blocks("python")
    exec(compile(text, "VERIFY.md", "exec"), {})


def test_shell_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = alluvia.connect(str(tmp_path))
    make_events(lake)
    (tmp_path / "events").rename(tmp_path / "requests")
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    (text,) = blocks("sh")
    command = text.replace(".venv/bin/alluvia", f"{shlex.quote(sys.executable)} -m alluvia.cli")
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("requests: sound (no data file was opened")
