"""The guide's Python runs in its order, with pandas and polars, which no other test's process has."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.serving import serving

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "ibis.md"
FRAMES = Path(sys.prefix) / "frames"
SERVER = "http://localhost:8080"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guide_and_data_frames(tmp_path: Path) -> None:
    (command,) = blocks("bash")
    assert shlex.split(command)[:4] == ["alluvia", "serve", "--lake", "lake"]
    with serving(tmp_path / "lake", *shlex.split(command)[4:], quiet=True) as (_, port):
        script = "".join(blocks("python")).replace(SERVER, f"http://127.0.0.1:{port}")
        script += "from tests.ibis.frames import check\ncheck(con)\ncheck(served)\nprint('all of it ran')"
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{FRAMES}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "all of it ran\n"), done.stderr
