"""Every code block of the README and of the guides runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from alluvia.delta.properties import KNOWN, read_properties
from alluvia.server.announcing import RunningServer, announced
from alluvia.server.serve import in_background

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = ROOT / "README.md"
FEATURES = ROOT / "docs" / "FEATURES.md"


def blocks(path: Path, *kinds: str) -> list[tuple[str, str]]:
    found = [(kind, text) for kind, text in BLOCK.findall(path.read_text()) if kind in kinds]
    assert found, f"{path.name} has no block of {kinds}"
    return found


@pytest.fixture(scope="module")
def demo_lake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with the lake that `make demo` leaves."""
    environment = {**os.environ, "ALLUVIA_LAKE": str(tmp_path_factory.mktemp("demo") / "lake")}
    subprocess.run([sys.executable, "-m", "alluvia.cli", "demo"], env=environment, check=True, capture_output=True)
    return environment


def test_the_blocks_of_the_page_of_features_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(FEATURES, "python"):
        exec(compile(text, "FEATURES.md", "exec"), names)


def test_the_blocks_of_the_guide_to_tables_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "TABLES.md", "python"):
        exec(compile(text, "TABLES.md", "exec"), names)


def test_the_blocks_of_the_guide_to_rollups_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "ROLLUPS.md", "python"):
        exec(compile(text, "ROLLUPS.md", "exec"), names)


def test_the_blocks_of_the_guide_to_merge_queries_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "MERGE_QUERIES.md", "python"):
        exec(compile(text, "MERGE_QUERIES.md", "exec"), names)


def test_the_blocks_of_the_guide_to_transactions_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "TRANSACTIONS.md", "python"):
        exec(compile(text, "TRANSACTIONS.md", "exec"), names)


def test_the_blocks_of_the_guide_to_tags_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "TAGS.md", "python"):
        exec(compile(text, "TAGS.md", "exec"), names)


def test_the_blocks_of_the_guide_to_streams_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "guides" / "streams.md", "python"):
        exec(compile(text, "streams.md", "exec"), names)


def test_the_guide_to_tables_names_every_property_with_its_default() -> None:
    lines = (ROOT / "docs" / "TABLES.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines if line.startswith("| `")]
    named = {name: default.strip("`") for names, default in cells for name in re.findall(r"`([\w.]+)", names)}
    own = {"alluvia.partition_by", "alluvia.sort_by", "alluvia.oldest_readable_version", "alluvia.rollup"}
    assert set(named) == (KNOWN - own - {"delta.enableInCommitTimestamps"}) | {"delta.constraints."}
    given = {name: default for name, default in named.items() if default}
    assert read_properties({}) == read_properties(given)


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, FEATURES], ids=lambda page: page.stem)
def test_shell_blocks_run_and_print_what_the_page_says(page: Path, demo_lake: dict[str, str]) -> None:
    found = blocks(page, "sh", "text")
    for (kind, text), (next_kind, expected) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind != "sh" or "make " in text:
            continue
        command = text.replace(".venv/bin/alluvia", f"{shlex.quote(sys.executable)} -m alluvia.cli")
        done = subprocess.run(["bash", "-ec", command], env=demo_lake, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if next_kind == "text":
            assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


def test_make_targets_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", README.read_text()))
    assert {"demo", "test", "serve", "synth", "bench", "lint", "test-fast"} <= named
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in named)


def test_the_loop_of_the_readme_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (text,) = (block for _, block in blocks(README, "console"))
    loop = [part.partition("\n") for part in text.split("$ ")[1:]]
    assert [command.split()[0] for command, _, _ in loop] == ["curl", "curl", ".venv/bin/alluvia", "curl"]
    with in_background(alluvia.connect(str(tmp_path))) as port:
        for command, _, expected in loop:
            _, *words = shlex.split(command)
            if command.startswith("curl "):
                assert _curl(port, words) == expected.removesuffix("\n")
            else:
                server = RunningServer("http://127.0.0.1:8080", "")  # as `alluvia serve` announces it
                with announced(str(tmp_path), None, server):
                    done = CliRunner().invoke(cli, [*words, "--lake", str(tmp_path)])
                assert (done.exit_code, done.output) == (0, expected)


def _curl(port: int, words: list[str]) -> str:
    """Send what curl sends for these words, and return the lines of the answer."""
    url = words[-1].replace("localhost:8080", f"http://127.0.0.1:{port}")
    headers = {"Content-Type": "application/json", "Accept": "application/json"} if words[0] == "--json" else {}
    body = words[1].encode() if len(words) > 1 else None
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:  # of this machine
        answer: bytes = reply.read()
    return "\n".join(answer.decode().splitlines())


def test_the_links_of_every_page_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("functions/*/README.md")]
    anchors = {page.resolve(): _anchors(page.read_text()) for page in pages}
    for page in pages:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", page.read_text()):
            place = (page.parent / target).resolve() if target else page.resolve()
            assert place.exists(), f"{page.name}: {target}"
            assert not anchor or place not in anchors or anchor in anchors[place], f"{page.name}: {target}#{anchor}"


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page: of its headings, as GitHub makes them, and those that it sets."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([\w-]+)">', text))
