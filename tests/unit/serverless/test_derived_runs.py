"""Which failed runs of derived tables took more than a function has, so that Spark may do them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from alluvia.engine.duck.failures import QueryTooCostly, ResultTooLarge
from alluvia.errors import AlluviaError, Invalid, NoTimeLeft, Unavailable
from alluvia.serverless.derived_runs import is_at_limit
from alluvia.store.flushed_files import flushed_file


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (QueryTooCostly("it took longer than the 3 seconds allowed"), True),
        (ResultTooLarge("it is larger"), True),
        (NoTimeLeft("the request ran out of time"), True),
        (MemoryError(), True),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), False),
        (Unavailable("the store did not serve a data file: try again"), False),
        (Invalid("Conversion Error: Could not convert string 'x' to INT32"), False),
    ],
)
def test_errors(error: Exception, expected: bool) -> None:
    behind = AlluviaError("a table failed")
    behind.__cause__ = error
    assert (is_at_limit(error), is_at_limit(behind)) == (expected, expected)


def test_a_full_disk_of_the_lakes_machine(tmp_path: Path) -> None:
    def fill(_: object) -> None:
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"1")

    with (
        pytest.raises(Unavailable, match="No space left on device") as caught,
        flushed_file(str(tmp_path / "t" / "1.parquet"), fill, lambda _: None),
    ):
        pass
    assert is_at_limit(caught.value)
