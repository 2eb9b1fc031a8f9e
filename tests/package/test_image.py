"""The container image's recipe: all of it that can be checked without a container."""

from __future__ import annotations

import json
import re
import shutil
import signal
import tomllib
import zipfile
from pathlib import Path

import pytest

from layers.recipes import PYTHON_VERSION
from tests.package.conftest import ROOT, Installed, build_wheel
from tests.package.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]
PORT = "8080"


def instructions(name: str) -> list[str]:
    """What follows an instruction's name, for each of the Dockerfile."""
    lines = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text()).splitlines()
    return [line.partition(" ")[2].strip() for line in lines if line.startswith(f"{name} ")]


def one(name: str) -> str:
    (found,) = instructions(name)
    return found


def command(name: str) -> list[str]:
    """The words of an instruction in exec form."""
    words: list[str] = json.loads(one(name).partition("[")[1] + one(name).partition("[")[2])
    return words


def test_the_files_that_it_copies_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    context = tmp_path / "source"
    for copy in instructions("COPY"):
        *sources, target = copy.split()
        if sources[0].startswith("--from"):
            continue
        for source in sources:
            assert source.partition("/")[0] in let_through
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, context / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (context / target).mkdir(exist_ok=True, parents=True)
                shutil.copy(ROOT / source, context / target)
    built = build_wheel(context, tmp_path / "dist")
    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_it_uses_the_versions_and_extras_of_the_project() -> None:
    assert one("ARG") == f"PYTHON={PYTHON_VERSION}"
    makefile = (ROOT / "Makefile").read_text()
    uv_version = re.search(r"^UV_VERSION := (.*)$", makefile, re.MULTILINE)
    assert uv_version is not None
    assert f"uv=={uv_version[1]}" in instructions("RUN")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = re.search(r"'\.\[(.*)]'", instructions("RUN")[1])
    assert installed is not None
    assert set(installed[1].split(",")) <= set(project["optional-dependencies"])


def test_it_runs_as_a_user_who_owns_the_volume() -> None:
    user, volume = one("USER"), one("VOLUME")
    assert int(user) > 0
    assert f"useradd --uid {user} " in instructions("RUN")[-1]
    assert re.search(rf"install --directory --owner (\w+) --group \1 {volume}$", instructions("RUN")[-1])
    assert f"ALLUVIA_LAKE={volume}" in one("ENV").split()


def test_what_it_runs_asks_for_tokens_unless_the_environment_says_otherwise() -> None:
    given = dict(word.split("=", 1) for word in one("ENV").split())
    assert given["ALLUVIA_AUTH"] == "tokens"
    assert not {"--auth", "--allow-host"} & set(command("CMD"))  # either would beat what the environment says


def test_what_it_runs_serves_and_is_healthy(with_cli: Installed) -> None:
    words = [*command("ENTRYPOINT"), *command("CMD")]
    given = dict(word.split("=", 1) for word in one("ENV").split())
    assert words[words.index("--port") + 1] == one("EXPOSE") == PORT
    serve = ["0" if word == PORT else word for word in words]
    with serving(with_cli, serve, {"ALLUVIA_AUTH": given["ALLUVIA_AUTH"]}) as (process, port):
        check = [word.replace(PORT, str(port)) for word in command("HEALTHCHECK")]
        healthy = with_cli.run(*check)
        assert healthy.returncode == 0, healthy.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert with_cli.run(*check).returncode != 0
