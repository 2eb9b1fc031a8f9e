"""The wheel, built from the checkout, and environments that hold nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")


def uv(*words: str) -> None:
    done = subprocess.run([str(_UV), *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build_wheel(source: Path, target: Path) -> Path:
    """Build the source distribution and from it the wheel, as a release does."""
    uv("build", "--quiet", "--out-dir", str(target), str(source))
    (wheel,) = target.glob("*.whl")
    return wheel


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel, and an empty folder to run it in. Nothing of the checkout is on its paths."""

    bin: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}{os.pathsep}{os.defpath}", "HOME": str(self.folder), "PYTHONUNBUFFERED": "1"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


Install = Callable[[Sequence[str]], Installed]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Install the wheel with extras, and what they need as the lock file has it."""

    def into(extras: Sequence[str]) -> Installed:
        folder = tmp_path_factory.mktemp("installed")
        uv("venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
        python = str(folder / "venv" / "bin" / "python")
        wanted = f"alluvia[{','.join(extras)}] @ {wheel.as_uri()}"
        uv(
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            "--constraint",
            "requirements.lock",
            "--verify-hashes",
            wanted,
        )
        (folder / "empty").mkdir()
        return Installed(folder / "venv" / "bin", folder / "empty")

    return into


@pytest.fixture(scope="session")
def core(install: Install) -> Installed:
    return install([])


@pytest.fixture(scope="session")
def with_cli(install: Install) -> Installed:
    return install(["cli"])
