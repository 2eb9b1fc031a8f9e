"""What is deployed: the folders and files on disk that the stack's assets are made of."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layers.build import build_code, build_layer, build_library
from layers.compiling import one_pyodide
from layers.emr import build_job
from layers.recipes import LAMBDA, LAYERS

FUNCTIONS = ("ingest", "merge", "pipeline", "query", "vacuum", "backfill")
LIBRARY = "library"
# A function's folder also holds its README and, for backfill, the job that runs on Spark and not on Lambda.
LEFT_OUT = ("README.md", "job.py", "__pycache__", ".*")


@dataclass(frozen=True, slots=True)
class Sources:
    """Paths on disk. `functions` and `layers` by name; a layer's folder holds `python/`.

    `job` is the script that Spark starts, `environment` the .tar.gz of the packages that it imports.
    """

    functions: Mapping[str, Path]
    layers: Mapping[str, Path]
    job: Path
    environment: Path


def build_sources(root: Path, build: Path) -> Sources:
    """Builds all of it from the repository at `root` into `build`. Needs uv, and a package registry the first time."""
    lock = root / "requirements.lock"
    with one_pyodide():
        layers = {recipe.name: build_layer(recipe, lock=lock, build=build) for recipe in LAYERS}
        layers[LIBRARY] = build_library(
            [root / "shared" / "alluvia"], build=build, python_version=LAMBDA.python_version
        )
        functions = stage_functions(root, build, LAMBDA.python_version)
    job = build_job(root, build)
    return Sources(functions, layers, job.script, job.environment)


def stage_functions(root: Path, build: Path, python_version: str | None = None) -> dict[str, Path]:
    """One folder for each function, with its code alone, importable as it is here: `functions.<name>.handler`.

    With a version of Python, its modules are compiled for that. Raises FileNotFoundError, naming the path, if a
    function has no handler.
    """
    files = {path: source for name in FUNCTIONS for path, source in _code_of(root / "functions" / name)}
    folder = build_code(files, build / "functions", "all", build=build, python_version=python_version)
    return {name: folder / name for name in FUNCTIONS}


def _code_of(source: Path) -> list[tuple[str, Path]]:
    """A function's files, by their paths below the folder of all staged functions."""
    if not (source / "handler.py").is_file():
        raise FileNotFoundError(f"{source / 'handler.py'} does not exist: every function needs one")
    files = sorted(path for path in source.rglob("*") if path.is_file())
    names = [path.relative_to(source) for path in files]
    place = Path(source.name, source.parent.name, source.name)
    return [
        ((place / name).as_posix(), path)
        for name, path in zip(names, files, strict=True)
        if not any(fnmatch.fnmatchcase(part, pattern) for part in name.parts for pattern in LEFT_OUT)
    ]
