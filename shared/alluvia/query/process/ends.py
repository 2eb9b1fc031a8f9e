"""Our errors for the end of a query's process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from alluvia.engine.duck.failures import ENGINE_FAILED, QueryStopped, QueryTooCostly, out_of_memory
from alluvia.errors import Invalid
from alluvia.processes.pool import Cancelled, OutOfMemory, OutOfTime, ProcessDied
from alluvia.query.limits import QueryLimits


@contextmanager
def within(limits: QueryLimits) -> Iterator[None]:
    """Raise our errors if a query's process ends, by itself or at one of the limits."""
    try:
        yield
    except OutOfTime:
        raise limits.too_slow() from None
    except Cancelled:
        raise QueryStopped("the query was cancelled") from None
    except OutOfMemory:
        raise QueryTooCostly(out_of_memory(limits.memory_bytes)) from None
    except ProcessDied as error:
        if error.status >= 0:
            raise
        if error.status == -signal.SIGKILL:  # not by us: the system was out of memory
            raise QueryTooCostly(out_of_memory(limits.memory_bytes)) from error
        if error.status == -signal.SIGXCPU:
            raise QueryTooCostly("the query takes too long to parse: shorten it") from error
        raise Invalid(ENGINE_FAILED) from error
