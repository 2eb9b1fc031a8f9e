"""A handler imports nothing that its layers do not hold. Lambda's own boto3 and what the tests install hide that."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from infra.specs import BACKFILL, INGEST, MERGE, QUERY, VACUUM, Spec
from layers.recipes import LAYERS, SPARK
from tests.infra.conftest import ROOT

pytestmark = pytest.mark.slow

# Import names of what a layer holds, with what its packages bring along.
MODULES = {
    "arro3-core": {"arro3", "typing_extensions"},
    "aws-lambda-powertools": {"aws_lambda_powertools", "jmespath", "typing_extensions"},
    "boto3": {"boto3", "botocore", "s3transfer", "dateutil", "six", "urllib3", "jmespath"},
    "cryptography": {"cryptography", "cffi"},
    "duckdb": {"duckdb", "_duckdb"},
    "fsspec": {"fsspec"},
    "multipart": {"multipart"},
    "obstore": {"obstore"},
    "opentelemetry-proto": {"google", "opentelemetry"},
    "msgspec": {"msgspec"},
    "orjson": {"orjson"},
    "pandas": {"pandas", "numpy", "pytz", "tzdata"},
    "pyarrow": {"pyarrow"},
}
IMPORT = """
import importlib, pathlib, sys
allowed, folders, module = set(sys.argv[1].split(",")), sys.argv[2].split(","), sys.argv[3]

class Gate:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed and top not in sys.stdlib_module_names and not name.startswith("_"):
            raise ModuleNotFoundError(f"no layer holds {top}", name=name)

sys.meta_path.insert(0, Gate())
sys.path[:0] = folders
importlib.import_module(module)
if "cli" in {part for name in sys.modules if name.startswith("alluvia.") for part in name.split(".")}:
    raise SystemExit("the command line is in no layer")
"""


def imports(module: str, packages: set[str], own: set[str]) -> subprocess.CompletedProcess[str]:
    allowed = own.union(*(MODULES[package] for package in packages))
    arguments = [",".join(sorted(allowed)), f"{ROOT},{ROOT / 'shared'}", module]
    return subprocess.run([sys.executable, "-c", IMPORT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("spec", [INGEST, MERGE, QUERY, VACUUM, BACKFILL], ids=lambda spec: str(spec.folder))
def test_a_handler_imports_what_its_layers_hold(spec: Spec) -> None:
    packages = {package for recipe in LAYERS if recipe.name in spec.layers for package in recipe.packages}
    done = imports(f"functions.{spec.folder}.handler", packages, {"alluvia", "functions"})
    assert done.returncode == 0, done.stderr


def test_the_job_imports_what_its_archive_holds() -> None:
    done = imports(
        "functions.backfill.job", set(SPARK.packages), {"alluvia", "alluvia_spark", "functions", "pyspark", "py4j"}
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_package_would_be_seen() -> None:
    done = imports("functions.ingest.handler", {"boto3", "orjson", "aws-lambda-powertools"}, {"alluvia", "functions"})
    assert re.search("no layer holds pyarrow", done.stderr)
