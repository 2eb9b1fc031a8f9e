"""What is deployed: the folders and files on disk that the stack's assets are made of."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layers.build import build_layer, build_library
from layers.emr import build_job
from layers.recipes import LAMBDA, LAYERS

FUNCTIONS = ("ingest", "merge", "query", "vacuum", "backfill")
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
    layers = {recipe.name: build_layer(recipe, lock=lock, build=build) for recipe in LAYERS}
    layers[LIBRARY] = build_library([root / "shared" / "alluvia"], build=build, python_version=LAMBDA.python_version)
    job = build_job(root, build)
    return Sources(stage_functions(root, build), layers, job.script, job.environment)


def stage_functions(root: Path, build: Path) -> dict[str, Path]:
    """One folder for each function, with its code alone, importable as it is here: `functions.<name>.handler`.

    Raises FileNotFoundError, naming the path, if a function has no handler.
    """
    return {name: _stage_function(root / "functions" / name, build / "functions" / name) for name in FUNCTIONS}


def _stage_function(source: Path, target: Path) -> Path:
    if not (source / "handler.py").is_file():
        raise FileNotFoundError(f"{source / 'handler.py'} does not exist: every function needs one")
    shutil.rmtree(target, ignore_errors=True)
    folder = target / source.parent.name / source.name
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return target
