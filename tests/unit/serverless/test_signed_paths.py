"""Signed paths: for one method, one path with its parameters, and a while."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.clock import ManualClock
from alluvia.errors import Forbidden, Invalid
from alluvia.serverless.signed_paths import PathSigner, signer_of

PATH = "/v1/results/x.csv"


def signed(clock: ManualClock, parameters: dict[str, str] | None = None) -> tuple[PathSigner, str]:
    signer = PathSigner(clock, b"k" * 32)
    path, _, query = signer.sign("GET", PATH, 60, parameters).partition("?")
    assert path == PATH
    return signer, query


@given(st.dictionaries(st.text("abc", min_size=1), st.text(max_size=20)))
def test_a_signed_path_tells_its_parameters_until_it_expires(parameters: dict[str, str]) -> None:
    clock = ManualClock()
    signer, query = signed(clock, parameters)
    clock.advance(59)
    assert signer.check("GET", PATH, query) == parameters
    assert signer.check("HEAD", PATH, query) == parameters
    clock.advance(1)
    with pytest.raises(Forbidden, match="this path has expired: ask for a new one"):
        signer.check("GET", PATH, query)


@given(st.data())
def test_nothing_of_it_may_be_changed(data: st.DataObject) -> None:
    signer, query = signed(ManualClock(), {"table": "clicks"})
    at = data.draw(st.integers(0, len(query) - 1))
    bit = data.draw(st.integers(0, 6))
    other = query[:at] + chr(ord(query[at]) ^ (1 << bit)) + query[at + 1 :]
    with pytest.raises(Forbidden, match="the signature of this path is wrong"):
        signer.check("GET", PATH, other)


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("PUT", PATH, None),
        ("GET", "/v1/results/y.csv", None),
        ("GET", PATH, ""),
        ("GET", PATH, "expires=99999999999"),
        ("GET", PATH, "expires=99999999999&signature="),
        ("GET", PATH, "signature=é\udcff"),
    ],
)
def test_nor_used_for_something_else(method: str, path: str, query: str | None) -> None:
    signer, own = signed(ManualClock())
    with pytest.raises(Forbidden, match="the signature of this path is wrong"):
        signer.check(method, path, own if query is None else query)


def test_another_key_signs_otherwise() -> None:
    clock = ManualClock()
    first, query = signed(clock)
    for other in (signer_of({}, clock), signer_of({"ALLUVIA_SIGNING_KEY": "s" * 32}, clock)):
        with pytest.raises(Forbidden, match="give each the same ALLUVIA_SIGNING_KEY"):
            other.check("GET", PATH, query)
    assert "kkkk" not in repr(first)


def test_servers_with_one_setting_take_each_others_paths() -> None:
    clock, setting = ManualClock(), {"ALLUVIA_SIGNING_KEY": "s" * 32}
    query = signer_of(setting, clock).sign("PUT", PATH, 60).partition("?")[2]
    assert signer_of(setting, clock).check("PUT", PATH, query) == {}
    with pytest.raises(Invalid, match="ALLUVIA_SIGNING_KEY: give at least 32"):
        signer_of({"ALLUVIA_SIGNING_KEY": "short"}, clock)
