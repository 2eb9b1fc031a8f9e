"""Failures of Spark as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from alluvia.errors import Unavailable


@contextmanager
def failures_explained() -> Iterator[None]:
    """Raise `Unavailable`, with the reason, where Spark gives a job up."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise Unavailable(f"the Spark job failed: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return the line of a failure that tells most: of a Python error in an executor, its last."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    traces = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    after = lines[traces[-1] + 1 :] if traces else []
    return (after or lines or ["no reason given"])[0]
