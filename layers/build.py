"""Builds layers and archives under a build folder, keyed by what goes into them.

Needs uv, node and package registries, no Docker.

A folder whose key has not changed is taken as it is, so a second build touches neither uv nor the network.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from layers.compiling import compile_modules
from layers.recipes import LAMBDA, MANYLINUX, Machine, Recipe, dropped

# Lambda puts /opt/python on sys.path, so a layer's packages are in a folder with that name.
PACKAGE_FOLDER = "python"
# The command line is not for Lambda, and what it imports is in no layer. The rest is what tools leave behind.
LIBRARY_LEFT_OUT = ("cli", "server", "__pycache__", ".*")


def build_layer(recipe: Recipe, *, lock: Path, build: Path, machine: Machine = LAMBDA, compiled: bool = True) -> Path:
    """The folder of `recipe`'s layer, built if `build` does not hold it yet. Its packages are in `python/`.

    Raises FileNotFoundError without uv, and RuntimeError with uv's message if an install fails, for instance on a wheel
    whose hash is not in the lock file.
    """
    what = repr((recipe, machine, compiled)).encode()
    key = digest([what, lock.read_bytes(), *_how_layers_are_built()])
    target = build / "layers" / f"{recipe.name}-{key}"
    if not target.is_dir():
        with _draft(target) as draft:
            _install(recipe, machine, lock, draft / PACKAGE_FOLDER)
            _slim(draft / PACKAGE_FOLDER)
            if compiled:
                compile_modules(draft / PACKAGE_FOLDER, machine.python_version, build)
    return target


def build_library(packages: Sequence[Path], *, build: Path, python_version: str | None = None) -> Path:
    """The folder of the layer that holds our own `packages` (folders), without the command line.

    It is a layer apart: it changes with every commit, while the others, a hundred times its size, change with the lock.
    With a version of Python, its modules are compiled for that.
    """
    files = {f"{package.name}/{name}": path for package in packages for name, path in _sources(package)}
    place = build / "layers"
    return build_code(files, place, "library", build=build, python_version=python_version, inside=PACKAGE_FOLDER)


def build_code(
    files: Mapping[str, Path],
    place: Path,
    name: str,
    *,
    build: Path,
    python_version: str | None = None,
    inside: str = ".",
) -> Path:
    """The folder in `place`, with `name` and a digest for its name, that holds copies of `files`, by their paths in it.

    With `inside`, they are in a folder of that name in it. With a version of Python, modules are compiled for that.
    """
    how = [*_how_layers_are_built(), str(python_version).encode(), inside.encode()]
    key = digest([*how, *(part for path, source in files.items() for part in (path.encode(), source.read_bytes()))])
    target = place / f"{name}-{key}"
    if not target.is_dir():
        with _draft(target) as draft:
            for path, source in files.items():
                copy = draft / inside / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
            if python_version is not None:
                compile_modules(draft / inside, python_version, build)
    return target


def build_archive(layers: Sequence[Path], name: str, *, build: Path) -> Path:
    """A .tar.gz called `name` with the packages of `layers` at its root. The same layers always give the same bytes.

    `layers` are folders that the functions above returned: their names carry the digests of their contents.
    """
    key = digest(layer.name.encode() for layer in layers)
    target = build / "archives" / key
    if not target.is_dir():
        with (
            _draft(target) as draft,
            (draft / name).open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=4, mtime=0) as packed,
        ):
            _write_tar(packed, [layer / PACKAGE_FOLDER for layer in layers])
    return target / name


def digest(parts: Iterable[bytes]) -> str:
    """16 hex digits that change when a part, their order or their borders change."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()[:16]


def size_bytes(folder: Path) -> int:
    """The bytes of all files below `folder`: what it takes of Lambda's limit once it is unzipped."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _how_layers_are_built() -> list[bytes]:
    return [Path(__file__).with_name(name).read_bytes() for name in ("build.py", "compiling.py", "recipes.py")]


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A folder to build in, which becomes `target` at the end: a build that is killed leaves no half of one behind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as parent:
        draft = Path(parent) / "draft"
        draft.mkdir()
        yield draft
        try:
            draft.rename(target)
        except OSError:
            # Another build of the same key was faster: its result is the same.
            if not target.is_dir():
                raise


def _install(recipe: Recipe, machine: Machine, lock: Path, target: Path) -> None:
    command = [
        *(str(_uv()), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(target)),
        *("--python-platform", f"{machine.processor}-{MANYLINUX}", "--python-version", machine.python_version),
        *("--only-binary", ":all:"),
        *("--constraint", str(lock), "--verify-hashes"),
        *recipe.packages,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RuntimeError(f"uv could not install the {recipe.name} layer from {lock.name}:\n{done.stderr.strip()}")


def _uv() -> Path:
    neighbour = Path(sys.executable).with_name("uv")
    found = neighbour if neighbour.is_file() else shutil.which("uv")
    if found is None:
        raise FileNotFoundError(
            f"uv was found neither next to {sys.executable} nor on PATH: install it with `pip install uv`"
        )
    return Path(found)


def _slim(folder: Path) -> None:
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in dropped(files):
        (folder / name).unlink()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()


def _sources(package: Path) -> list[tuple[str, Path]]:
    found = ((path.relative_to(package), path) for path in package.rglob("*") if path.is_file())
    return sorted((name.as_posix(), path) for name, path in found if not any(map(_left_out, name.parts)))


def _left_out(part: str) -> bool:
    return any(fnmatch.fnmatchcase(part, pattern) for pattern in LIBRARY_LEFT_OUT)


def _write_tar(packed: gzip.GzipFile, folders: Sequence[Path]) -> None:
    files = sorted((path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*"))
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in files:
            if not path.is_file():
                continue
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o644
            with path.open("rb") as contents:
                archive.addfile(entry, contents)
