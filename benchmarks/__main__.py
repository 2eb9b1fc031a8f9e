"""Run the benchmarks, print one table and keep it under `benchmarks/results/`."""

from __future__ import annotations

import sys
from importlib.metadata import version

from benchmarks import report, requests, writers
from tests.s3server import running_server

PARTS = {"requests": requests.figures, "writers": writers.figures}


def main(names: list[str]) -> int:
    """Run some benchmarks, all by default; return 1 if a bar does not hold."""
    found = []
    for name in names or list(PARTS):
        with running_server() as server:
            found += PARTS[name](server)
    versions = {name: version(name) for name in ("deltalake", "pyarrow", "duckdb", "moto")}
    path = report.keep("-".join(names) or "all", found, versions)
    sys.stdout.write(f"{report.text(found)}\n\nkept in {path.relative_to(path.parent.parent.parent)}\n")
    return 1 if any(figure.holds is False for figure in found) else 0


sys.exit(main(sys.argv[1:]))
