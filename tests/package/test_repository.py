"""What the repository tells its contributors' tools."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter

from tests.package.conftest import ROOT
from tests.slow import LEFT_OUT


def test_pre_commit_runs_what_make_lint_runs() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    wanted = re.findall(r"\$\(BIN\)/([\w-]+(?: \w+)?)", lint)
    assert wanted == re.findall(r"entry: \.venv/bin/([\w-]+(?: \w+)?)", hooks)


def test_mypy_reads_the_types_of_all_of_aws_cdk_that_is_imported() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    read = {name for rule in rules if rule.get("follow_imports") == "normal" for name in rule["module"]}
    imported = {
        f"{node.module}.{alias.name}"
        for folder in ("infra", "layers", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "aws_cdk"
        for alias in node.names
        if alias.name.startswith("aws_")
    }
    assert read == imported | {"aws_cdk"}


def test_the_guide_to_contributing_names_targets_and_folders_that_exist() -> None:
    guide, makefile = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in re.findall(r"`make ([a-z-]+)", guide))
    folders = re.findall(r"^\| (`[\w/]+`(?:, `[\w/]+`)*) \| ", guide, re.MULTILINE)
    assert len(folders) >= 7
    assert all((ROOT / name).is_dir() for row in folders for name in re.findall(r"`([\w/]+)`", row))


def test_what_the_quick_part_leaves_out_is_there() -> None:
    for name in LEFT_OUT:
        path, _, test = name.partition("::")
        files = [*ROOT.glob(f"{path}*")]
        assert files, name
        assert not test or f"def {test}(" in files[0].read_text(), name


def test_no_two_public_classes_share_a_name() -> None:
    modules = [path for folder in ("shared", "functions", "infra", "layers") for path in (ROOT / folder).rglob("*.py")]
    classes = [
        node.name for path in modules for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    ]
    assert len(classes) > 200
    assert {name for name, count in Counter(classes).items() if count > 1 and not name.startswith("_")} == set()
