"""Every class of dbt-tests-adapter that has tests, found by walking the package, so that none is forgotten."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import dbt.tests.adapter


def every_class() -> Iterator[type]:
    """Yield the classes with tests. Where a class repeats another under a second name, the other is enough."""
    (root,) = map(Path, dbt.tests.adapter.__path__)
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("dbt.tests.adapter", *path.relative_to(root).with_suffix("").parts))
        for _, found in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if found.__module__ == name and has_tests(found) and not _repeats(found):
                yield found


def has_tests(found: type) -> bool:
    return any(name.startswith("test_") and callable(getattr(found, name)) for name in dir(found))


def key_of(found: type) -> str:
    """Return a class by the last part of its module and its name: names alone occur twice."""
    return f"{found.__module__.rpartition('.')[2]}.{found.__name__}"


def _repeats(found: type) -> bool:
    own = set(vars(found)) - {"__module__", "__doc__", "__static_attributes__", "__firstlineno__", "__qualname__"}
    return not own and has_tests(found.__base__ or object)
