"""Declarations in Python: what a file `pipelines/*.py` calls. It is the user's own program, and runs as such.

```python
from alluvia.pipelines import expect, table

for kind in ("view", "click"):
    table(f"{kind}s", f"SELECT * FROM events WHERE event = '{kind}'", expectations=[expect("has_id", "id IS NOT NULL")])
```
"""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from alluvia.errors import Invalid
from alluvia.pipelines.declarations.declaration import WARN, Declaration, Expectation, Sequencing

_declared: ContextVar[list[Declaration] | None] = ContextVar("declared", default=None)
Query = Callable[[], str]


def expect(name: str, condition: str, action: str = WARN) -> Expectation:
    """Return an expectation: a condition in SQL on rows, and `warn`, `drop`, `quarantine` or `fail` for others."""
    return Expectation(name, condition, action)


def table(
    target: str | None = None,
    query: str | None = None,
    *,
    key: Sequence[str] = (),
    sequence_by: str | None = None,
    delete_when: str | None = None,
    scd: int = 1,
    kind: str | None = None,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    expectations: Iterable[Expectation] = (),
    every_seconds: int | None = None,
    on_change: bool = False,
) -> Callable[[Query], Query]:
    """Declare a table as CREATE OR REFRESH TABLE does: by its query, or as a decorator of a function that returns it.

    The function's name is the table's if there is no `target`. Raises `Invalid`.
    """
    place = _place()

    def declare(name: str, text: str) -> None:
        sequencing = None if sequence_by is None else Sequencing(sequence_by, delete_when, scd)
        _given().append(
            Declaration(
                name.lower(),
                text,
                tuple(key),
                sequencing,
                kind,
                tuple(partition_by),
                tuple(sort_by),
                tuple(cluster_by),
                dict(properties or {}),
                tuple(expectations),
                every_seconds,
                on_change,
                place,
            )
        )

    if query is not None:
        if target is None:
            raise Invalid(f"{place}: table(…) needs the name of the table")
        declare(target, query)

    def decorated(function: Query) -> Query:
        if query is None:
            declare(target or function.__name__, function())
        return function

    return decorated


def declarations_in(path: Path, shown: str) -> list[Declaration]:
    """Run a Python file, and return what it declares. Raises `Invalid`, with the file, for an error in it."""
    with _collecting() as declared:
        try:
            runpy.run_path(str(path), run_name="__pipeline__")
        except Invalid:
            raise
        except Exception as error:
            raise Invalid(f"{shown}: {type(error).__name__}: {error}") from error
    return declared


@contextmanager
def _collecting() -> Iterator[list[Declaration]]:
    declared: list[Declaration] = []
    token = _declared.set(declared)
    try:
        yield declared
    finally:
        _declared.reset(token)


def _given() -> list[Declaration]:
    declared = _declared.get()
    if declared is None:
        raise Invalid("table(…) declares a table of a pipeline: run the file with `alluvia pipeline`")
    return declared


def _place() -> str:
    """Return the file and the line of the caller's caller."""
    frame = inspect.stack(0)[2]
    return f"{Path(frame.filename).name}:{frame.lineno}"
