"""Vacuum of a table with a million files when there is nothing to do: our CPU and memory.

Its log is in a directory, and its data files are only rows of a file, which a store lists by the page, as it has S3's.
The figures leave out what S3 and its client take for a page.
"""

from __future__ import annotations

from pathlib import Path

import alluvia
from benchmarks.measure import in_processes, megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.tables import table_of
from benchmarks.vacuum_listing import write_pages
from tests.s3server import S3Server

FILES = 1_000_000
A_COMMIT = 50_000
REPEATS = 3
CPU_SECONDS_MAX = 1.0
PEAK_BYTES_MAX = 200_000_000


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Vacuum from a checkpoint in one file, then from one with sidecars."""
    table = table_of(alluvia.connect(str(folder)), "vacuumed", FILES, A_COMMIT)
    pages = folder / "pages.arrow"
    write_pages(pages, (f"vacuumed/{key}" for key in sorted(table.snapshot().files.keys())))
    table.checkpoint()
    found = _figures(folder, pages, "v1 checkpoint")
    table.evolve(properties={"delta.checkpointPolicy": "v2"})
    table.checkpoint()
    return found + _figures(folder, pages, "v2 checkpoint")


def _figures(folder: Path, pages: Path, kind: str) -> list[Figure]:
    arguments = {"uri": str(folder / "vacuumed"), "pages": str(pages)}
    run = in_processes({"ours": ("vacuum_ours", arguments)}, REPEATS)["ours"]
    assert run.answer == FILES, run.answer
    name = f"{FILES:,} files, {kind}, vacuum with nothing to do"
    return [
        Figure(f"{name}: CPU", milliseconds(run.cpu_seconds), bar=f"at most {CPU_SECONDS_MAX:g} s",
               holds=run.cpu_seconds <= CPU_SECONDS_MAX),
        Figure(f"{name}: peak memory", megabytes(run.peak_bytes), bar=f"at most {megabytes(PEAK_BYTES_MAX)}",
               holds=run.peak_bytes <= PEAK_BYTES_MAX),
    ]  # fmt: skip
