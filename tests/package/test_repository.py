"""What the repository tells its contributors' tools."""

from __future__ import annotations

import re

from tests.package.conftest import ROOT


def test_pre_commit_runs_what_make_lint_runs() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    wanted = re.findall(r"\$\(BIN\)/([\w-]+(?: \w+)?)", lint)
    assert wanted == re.findall(r"entry: \.venv/bin/([\w-]+(?: \w+)?)", hooks)


def test_the_guide_to_contributing_names_targets_and_folders_that_exist() -> None:
    guide, makefile = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in re.findall(r"`make ([a-z-]+)", guide))
    folders = re.findall(r"^\| (`[\w/]+`(?:, `[\w/]+`)*) \| ", guide, re.MULTILINE)
    assert len(folders) >= 7
    assert all((ROOT / name).is_dir() for row in folders for name in re.findall(r"`([\w/]+)`", row))
