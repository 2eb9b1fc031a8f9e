"""What each layer holds, and what is left out of it. Pure.

A recipe names the packages that our code imports; their versions, their hashes and what they need in turn come from the
lock file. What the command line alone needs (click, prometheus-client, prompt-toolkit, pyjwt, rich, waitress) is in
no layer.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

PYTHON_VERSION = "3.13"
# glibc 2.28 wheels run on Amazon Linux 2023 (2.34), which Lambda's python3.13 and EMR's Spark 8 are built on.
MANYLINUX = "manylinux_2_28"
# Lambda's limit for a function's code and all its layers, unzipped: 250 MB, counted in units of 1024.
UNZIPPED_LIMIT_BYTES = 250 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Recipe:
    """Packages that are installed together. `name` names the layer and the folder that it is built in."""

    name: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What a layer's wheels are for: a processor as `platform.machine` names it, and a version of Python."""

    processor: str = "aarch64"
    python_version: str = PYTHON_VERSION


LAMBDA = Machine()
CORE = Recipe(
    "core",
    (
        "arro3-core",
        "aws-lambda-powertools",
        "boto3",
        "cryptography",
        "msgspec",
        "multipart",
        "obstore",
        "opentelemetry-proto",
        "orjson",
        "pyarrow",
    ),
)
QUERY = Recipe("query", ("duckdb", "fsspec"))
SPARK = Recipe(
    "spark", ("arro3-core", "boto3", "duckdb", "fsspec", "msgspec", "obstore", "orjson", "pandas", "pyarrow")
)
LAYERS = (CORE, QUERY)

# Patterns over paths relative to the layer's package folder; `*` crosses slashes.
KEPT_SERVICES = (
    "emr-serverless",
    "lambda",
    "s3",
    "secretsmanager",
    "sqs",
    "ssm",
    "sso",
    "sso-oidc",
    "stepfunctions",
    "sts",
)
"""The services of AWS that our code calls, or that finding credentials may. boto3 knows no others."""
DROPPED = (
    ".lock",
    "bin/*",
    "*.pyx",
    "*.pxd",
    "*.pxi",
    "boto3/examples/*",
    "pyarrow/include/*",
    "pyarrow/src/*",
    "pyarrow/tests/*",
    # Flight is a network protocol, and S3 is reached through obstore: nothing of ours loads either library.
    "pyarrow/*flight*",
    "pyarrow/_s3fs.*",
    "pyarrow/libarrow_s3.*",
    "pyarrow/_pyarrow_cpp_tests.*",
    # Other engines and file systems than ours.
    "pyarrow/_azurefs.*",
    "pyarrow/_gcsfs.*",
    "pyarrow/_hdfs.*",
    "pyarrow/*orc*",
    "pyarrow/_substrait.*",
    # Tests and type hints of others.
    "*/tests/*",
    "*.pyi",
)
_SERVICE = re.compile(r"boto(?:core|3)/data/([^/]+)/")
_LIBRARY = re.compile(r"(?P<stem>.+/lib[^/]+\.so)(?P<version>(\.\d+)*)")


def dropped(paths: Iterable[str]) -> list[str]:
    """Those of `paths` (relative, with forward slashes) that a layer goes without, sorted.

    Beside the patterns of `DROPPED`: a wheel holds no links, so one shared library comes as `libx.so`, `libx.so.26` and
    `libx.so.26.1`, three copies of the same bytes. The loader opens the name with one number (the soname): it stays.
    """
    found = sorted(set(paths))
    known = set(found)
    return [path for path in found if _matches(path) or _is_copy(path, known)]


def _matches(path: str) -> bool:
    service = _SERVICE.match(path)
    return (service is not None and service[1] not in KEPT_SERVICES) or any(
        fnmatch.fnmatchcase(path, pattern) for pattern in DROPPED
    )


def _is_copy(path: str, known: set[str]) -> bool:
    match = _LIBRARY.fullmatch(path)
    if match is None:
        return False
    numbers = match["version"].split(".")[1:]
    if len(numbers) > 1:
        return f"{match['stem']}.{numbers[0]}" in known
    return not numbers and any(re.fullmatch(re.escape(path) + r"\.\d+", other) for other in known)
