"""A table of results: ours, theirs, the ratio; printed, and kept as a file in the repository."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `bar` says what ours must reach, `holds` whether it does; None where nothing is asked."""

    name: str
    ours: str
    theirs: str = ""
    ratio: float | None = None
    bar: str = ""
    holds: bool | None = None


def text(figures: list[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| Figure | Alluvia | deltalake (or as named) | ratio | bar | holds |", "|---|---|---|---|---|---|"]
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        holds = "" if figure.holds is None else ("yes" if figure.holds else "NO")
        lines.append(f"| {figure.name} | {figure.ours} | {figure.theirs} | {ratio} | {figure.bar} | {holds} |")
    return "\n".join(lines)


def keep(name: str, figures: list[Figure], versions: dict[str, str]) -> Path:
    """Write the figures with date, commit and machine, and return the file."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    facts = {
        "date": now.isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        **versions,
    }
    path = RESULTS / f"{now:%Y-%m-%d}-{name}.md"
    head = "\n".join(f"- {key}: {value}" for key, value in facts.items())
    path.write_text(f"# {name}\n\n{head}\n\n{text(figures)}\n")
    (RESULTS / f"{now:%Y-%m-%d}-{name}.json").write_text(
        json.dumps({**facts, "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n"
    )
    return path


def _commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=RESULTS.parent
    )
    return answer.stdout.strip() or "unknown"
