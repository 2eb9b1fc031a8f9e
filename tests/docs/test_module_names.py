"""Pages, docstrings and comments name only modules that exist."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path, PurePath

from tests.docs.english import ROOT

FOLDERS = ("benchmarks", "docs", "events", "functions", "infra", "layers", "shared", "tests")
NAME = re.compile(r"(?<![\w/.])[\w/.-]*\w\.py\b")
BUILT = "build/"
"""Below it are files that `make` writes."""
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def files(ending: str) -> Iterator[Path]:
    """The repository's files of an ending, in the order of their paths."""
    yield from sorted(ROOT.glob(f"*{ending}"))
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob(f"*{ending}"))


def prose(source: str) -> str:
    """The docstrings and comments of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = (each for each in tokens if each.type == tokenize.COMMENT or each.string.startswith('"""'))
    return "\n".join(each.string for each in kept)


def unknown(text: str, folder: PurePath, ends: set[str]) -> list[str]:
    """The modules that a text in a folder names and that do not exist, by a path's end or from its folder."""
    named = {name for name in NAME.findall(text) if not name.startswith(BUILT)}
    return sorted(name for name in named if name not in ends and not (ROOT / folder / name).is_file())


def test_named_modules_exist() -> None:
    modules = [path.relative_to(ROOT) for path in files(".py")]
    ends = {"/".join(path.parts[start:]) for path in modules for start in range(len(path.parts))}
    texts = {path: prose((ROOT / path).read_text()) for path in modules}
    texts |= {path.relative_to(ROOT): FENCED.sub("", path.read_text()) for path in files(".md")}
    missing = {str(path): names for path, text in texts.items() if (names := unknown(text, path.parent, ends))}
    assert not missing
    assert len(texts) > len(modules) > 1000


def test_a_module_that_is_gone_is_named() -> None:
    ends = {"query/engine.py", "engine.py"}
    text = "See `engine.py`, `query/engine.py` and `query/gone.py`; `build/emr/job.py` is written by make."
    assert unknown(text, PurePath("docs"), ends) == ["query/gone.py"]
    assert prose('"""See `a.py`."""\nx = "b.py"  # c.py\n') == '"""See `a.py`."""\n# c.py'
