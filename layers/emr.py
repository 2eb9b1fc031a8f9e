"""The backfill job as Spark runs it, on EMR Serverless or another cluster: `python -m layers.emr` fills build/emr."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from layers.build import build_archive, build_layer, build_library
from layers.recipes import LAMBDA, SPARK, Machine

SPARK_ARCHIVE = "environment.tar.gz"
ROOT = Path(__file__).resolve().parents[1]


class SparkJob(NamedTuple):
    """`script` is what Spark starts, `environment` the .tar.gz of the packages that it imports."""

    script: Path
    environment: Path


def build_job(root: Path, build: Path, machine: Machine = LAMBDA) -> SparkJob:
    """Builds the job from the repository at `root` into `build`, for a processor and a version of Python."""
    library = build_library([root / "shared" / "alluvia", root / "shared" / "alluvia_spark"], build=build)
    packages = build_layer(SPARK, lock=root / "requirements.lock", build=build, machine=machine, compiled=False)
    environment = build_archive([packages, library], SPARK_ARCHIVE, build=build)
    return SparkJob(root / "functions" / "backfill" / "job.py", environment)


def main(root: Path) -> None:
    """Puts the two files side by side, as `ALLUVIA_CODE_URI` has them."""
    target = root / "build" / "emr"
    target.mkdir(parents=True, exist_ok=True)
    for path in build_job(root, root / "build"):
        shutil.copyfile(path, target / path.name)
        sys.stdout.write(f"{(target / path.name).relative_to(root)}\n")


if __name__ == "__main__":
    main(ROOT)
