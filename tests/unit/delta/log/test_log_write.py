"""Putting a commit under its key when answers are lost: nothing is believed that was not read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.delta.log.commit import CommitActions, encode_commit
from alluvia.delta.log.committer import WRITE_TRIES
from alluvia.delta.log.paths import commit_name
from alluvia.errors import AnswerLost, CommitUnknown, Corrupt, Invalid, Unavailable
from alluvia.store import MemoryStore, PutResult
from tests.unit.delta.log.build import ROOT, new_log, put_commit

OURS = encode_commit({"txnId": "ours"}, [])
KEY = ROOT + commit_name(1)


class Unclear(MemoryStore):
    """Plays a script: what becomes of each conditional put and of each read of the key, in turn; then it is well."""

    def __init__(self, *script: str) -> None:
        super().__init__("m")
        self.script = list(script)
        self.done: list[str] = []

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if key != KEY:
            return super().put_if_absent(key, data)
        step = self._next("put")
        if step == "refused":
            msg = "no"
            raise Invalid(msg)
        if step == "busy":
            msg = "409 again and again"
            raise Unavailable(msg)
        result = PutResult.EXISTS if step == "lost before" else super().put_if_absent(key, data)
        if step == "retried":  # a proxy on the way sent it twice
            result = super().put_if_absent(key, data)
        if step.startswith("lost"):
            msg = "gone"
            raise AnswerLost(msg)
        return result

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        step = self._next("get") if key == KEY else ""
        if step == "down":
            msg = "no answer"
            raise Unavailable(msg)
        if step == "denied":
            msg = "no"
            raise Invalid(msg)
        return super().get(key, start, end)

    def _next(self, kind: str) -> str:
        step = self.script.pop(0) if self.script and self.script[0].startswith(f"{kind} ") else f"{kind} well"
        self.done.append(kind)
        return step.removeprefix(f"{kind} ")


def write(*script: str, before: Callable[[Unclear], None] | None = None) -> tuple[Unclear, CommitActions | None]:
    store = Unclear(*script)
    _, _, log = new_log(1, store=store)
    if before is not None:
        before(store)
    store.done.clear()
    try:
        return store, log.write(1, OURS, "ours")
    finally:
        assert not store.script


def theirs(store: Unclear) -> None:
    put_commit(store, 1, [], 5, "theirs")


@pytest.mark.parametrize(
    ("script", "requests"),
    [
        ((), ["put"]),
        (("put lost",), ["put", "get"]),
        (("put retried",), ["put", "get"]),
        (("put lost before",), ["put", "get", "put"]),
        (("put lost before", "put lost"), ["put", "get", "put", "get"]),
        (("put lost before", "put lost before", "put lost before"), ["put", "get"] * 3 + ["put"]),
    ],
)
def test_a_commit_that_happened_is_known_to_be_ours(script: tuple[str, ...], requests: list[str]) -> None:
    store, winner = write(*script)
    assert winner is None
    assert store.get(KEY) == OURS
    assert store.done[:-1] == requests


@pytest.mark.parametrize("script", [(), ("put lost",), ("put lost before",)])
def test_another_commit_under_the_key_has_won(script: tuple[str, ...]) -> None:
    store, winner = write(*script, before=theirs)
    assert winner is not None
    assert winner.info["txnId"] == "theirs"
    assert b"ours" not in store.get(KEY)


def test_a_commit_without_a_transaction_id_is_anothers() -> None:
    nameless = encode_commit({}, [])
    _, winner = write(before=lambda store: store.put(KEY, nameless))
    assert winner == CommitActions(1, {})


@pytest.mark.parametrize("read", ["get down", "get denied"])
@pytest.mark.parametrize("put", ["put lost", "put lost before", "put retried"])
def test_the_outcome_is_unknown_when_reading_back_fails(put: str, read: str) -> None:
    with pytest.raises(CommitUnknown, match="version 1"):
        write(put, read)


def test_the_outcome_is_unknown_when_no_answer_ever_comes() -> None:
    with pytest.raises(CommitUnknown, match="version 1"):
        write(*["put lost before"] * WRITE_TRIES)


@pytest.mark.parametrize("refusal", ["put busy", "put refused"])
def test_an_unclear_put_before_a_refusal_leaves_the_outcome_unknown(refusal: str) -> None:
    with pytest.raises(CommitUnknown):
        write("put lost before", "get well", refusal)


@pytest.mark.parametrize(("step", "error"), [("put busy", Unavailable), ("put refused", Invalid)])
def test_a_put_that_was_refused_is_no_mystery(step: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        write(step)
    assert type(raised.value) is error


def test_a_damaged_winner_is_named() -> None:
    with pytest.raises(Corrupt, match=commit_name(1)):
        write(before=lambda store: store.put(KEY, b"{"))
