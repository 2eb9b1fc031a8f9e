"""Commands that have Spark do their work, with `--spark`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from alluvia.cli.common import Common


@contextmanager
def spark_upkeep(common: Common, *, wanted: bool) -> Iterator[Callable[..., Any] | None]:
    """Give what calls an operation of `alluvia_spark.upkeep` by its name, for a table; None where none is wanted."""
    if not wanted:
        yield None
        return
    if common.branch is not None:
        raise click.UsageError("--spark works on the lake itself: leave --branch or --spark out")
    from alluvia_spark import upkeep
    from alluvia_spark.session import QUICK_JAVA, session

    with common.progress("starting Spark"), session("alluvia upkeep", settings=QUICK_JAVA) as spark:

        def call(operation: str, table: str, *arguments: Any, **how: Any) -> Any:
            work = partial(getattr(upkeep, operation), spark, common.uri, table)
            return work(*arguments, **how, options=common.store_options)

        yield call
