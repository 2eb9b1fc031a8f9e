"""Fixtures that several kinds of tests share."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from alluvia.processes.pool import Pool
from tests.examples import examples
from tests.java import QUICK
from tests.no_pandas import NoPandas
from tests.s3proxy import running_s3proxy
from tests.s3server import S3Endpoint, S3Server, running_server
from tests.scheduling import FilesAtOnce, begin_elsewhere, in_order
from tests.slow import LEFT_OUT

ID_MAX = 80

settings.register_profile(
    "alluvia",
    max_examples=examples(40),
    deadline=None,
    derandomize=False,  # as Hypothesis would where it finds itself in CI: then portions of a test would be the same
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("alluvia")
sys.meta_path.insert(0, NoPandas())
_STATE = tempfile.mkdtemp(prefix="alluvia-state-")
"""Where servers of these tests are announced, and prompts keep their history."""
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
pytest.MonkeyPatch().setenv("XDG_STATE_HOME", _STATE)
pytest.MonkeyPatch().setenv("JDK_JAVA_OPTIONS", " ".join(QUICK))  # of each `java` that a test starts
pytest.MonkeyPatch().setattr(os, "fsync", lambda _: None)  # no test needs its files after a power failure: milliseconds
# A command ends its query's process, as its own process ends: here, the next command goes on with it.
pytest.MonkeyPatch().setattr(Pool, "keeping_none", contextlib.nullcontext)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background shell's, which all processes of tests inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAtOnce:
    return FilesAtOnce(config, log)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut long texts: the name of a test is sent at each of its steps, and is in the environment of its processes."""
    return f"{ascii(val)[:ID_MAX]}..." if isinstance(val, str | bytes) and len(val) > ID_MAX else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    begin_elsewhere(session.config)
    gc.disable()  # it would look through all tests again and again, and find nothing
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    in_order(config, items)
    for item in items:
        if item.nodeid.startswith(LEFT_OUT):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Spare the garbage collector, which Hypothesis runs before each test, the thousands of tests themselves.

    What tests make is mostly gone before it looks, so let it look less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server with exact conditional writes, one for each test process."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3proxy() -> Iterator[S3Endpoint]:
    """Another S3 server with exact conditional writes, which others wrote; one for each test process."""
    with running_s3proxy() as server:
        yield server
