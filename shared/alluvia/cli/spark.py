"""Commands that have Spark do their work, with `--spark`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common

if TYPE_CHECKING:
    from alluvia.pipelines.execution import Execution


@contextmanager
def spark_upkeep(common: Common, *, wanted: bool) -> Iterator[Callable[..., Any] | None]:
    """Give what calls an operation of `alluvia_spark.upkeep` by its name, for a table; None where none is wanted."""
    if not wanted:
        yield None
        return
    _check_no_branch(common)
    from alluvia_spark import upkeep
    from alluvia_spark.session import QUICK_JAVA, session

    with common.progress("starting Spark"), session("alluvia upkeep", settings=QUICK_JAVA) as spark:

        def call(operation: str, table: str, *arguments: Any, **how: Any) -> Any:
            work = partial(getattr(upkeep, operation), spark, common.uri, table)
            return work(*arguments, **how, options=common.store_options)

        yield call


@contextmanager
def spark_execution(common: Common, *, wanted: bool) -> Iterator[Execution | None]:
    """Give what computes the runs of pipelines by Spark's tasks; None where that is not wanted."""
    if not wanted:
        yield None
        return
    _check_no_branch(common)
    from alluvia_spark.pipelines import execution_of
    from alluvia_spark.session import QUICK_JAVA, session

    with common.progress("starting Spark"), session("alluvia pipeline", settings=QUICK_JAVA) as spark:
        yield execution_of(spark, common.uri, options=common.store_options)


def _check_no_branch(common: Common) -> None:
    if common.branch is not None:
        raise click.UsageError("--spark works on the lake itself: leave --branch or --spark out")
