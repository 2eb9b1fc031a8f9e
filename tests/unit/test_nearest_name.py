"""The nearest name to an unknown one, and the errors that suggest it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.errors import AlluviaError, Invalid
from alluvia.nearest_name import NAME_CHARS_MAX, did_you_mean, hint, nearest
from alluvia.server.setting_names import SETTINGS, check_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("eventz", ["clicks", "events"], ["events"]),
        ("EVENTS", ["events"], ["events"]),
        ("usr_id", ["user_id", "ts"], ["user_id"]),
        ("desc", ["delete", "describe"], ["describe"]),
        ("rejected", ["events"], []),
        ("x", ["y", "z"], []),
        ("", ["a"], []),
    ],
)
def test_names_of_nearly_the_same_letters_are_near(name: str, known: list[str], near: list[str]) -> None:
    assert nearest(name, known) == near
    question = f"did you mean {near[0]}?" if near else ""
    assert did_you_mean(name, known) == question
    assert hint(name, known) == (f": {question}" if near else "")


def test_long_names_and_many_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def matches(name: str, known: dict[str, str], *_: Any) -> list[str]:
        seen.append((len(name), len(known)))
        return []

    monkeypatch.setattr("difflib.get_close_matches", matches)
    assert nearest("x" * 10_000, map(str, range(100_000))) == []
    assert seen == [(NAME_CHARS_MAX, 2000)]


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    made = alluvia.connect(tmp_path / "lake")
    made.create_table("events", {"user_id": "string", "amount": "long"})
    return made


@pytest.mark.parametrize(
    ("call", "question"),
    [
        (lambda lake: lake.sql("FROM eventz"), "'eventz': did you mean events?"),
        (lambda lake: lake.sql("SELECT * FROM fils('events')"), "fils(): did you mean files?"),
        (lambda lake: lake.sql("INSERT INTO events (usr_id) VALUES ('a')"), "usr_id: did you mean user_id?"),
        (lambda lake: lake["events"].evolve(drop=["usr_id"]), "did you mean user_id?"),
        (lambda lake: lake["events"].evolve(properties={"alluvia.tll": "1 day"}), "did you mean alluvia.ttl?"),
        (lambda lake: lake["events"].evolve(properties={"alluvia.ttl_column": "amont"}), "did you mean amount?"),
        (lambda lake: lake["events"].scan(columns=["amont"]), "did you mean amount?"),
        (lambda lake: lake["events"].upsert([{"usr_id": "a"}], ["usr_id"]), "did you mean user_id?"),
        (lambda lake: lake.create_table("t", {"amount": "long"}, partition_by=["amont"]), "did you mean amount?"),
        (lambda lake: lake.create_table("t", {"amount": "long"}, sort_by=["amont"]), "did you mean amount?"),
        (lambda lake: lake.create_table("t", {"amount": "long"}, cluster_by=["amont"]), "did you mean amount?"),
    ],
)
def test_an_error_suggests_the_nearest(lake: alluvia.Lake, call: Any, question: str) -> None:
    with pytest.raises(AlluviaError, match=re.escape(question)):
        call(lake)


def test_an_error_about_a_tag_suggests_the_nearest(lake: alluvia.Lake) -> None:
    lake["events"].tag("before")
    with pytest.raises(AlluviaError, match="has no tag 'befor': did you mean before"):
        lake["events"].snapshot(tag="befor")


def test_attributes_suggest_the_nearest(lake: alluvia.Lake) -> None:
    for owner, name, near in (
        (alluvia, "conect", "connect"),
        (lake, "tabels", "tables"),
        (lake["events"], "apend", "append"),
    ):
        with pytest.raises(AttributeError, match=rf"has no '{name}'; did you mean {near}\?"):
            getattr(owner, name)
    with pytest.raises(AttributeError, match=r"use lake\.publish_query"):
        getattr(lake, "publish")  # noqa: B009 - it has none


def test_a_setting_that_is_misspelt_is_refused() -> None:
    check_settings(["PATH", "AUTH", "ALLUVIA_AUTH", "ALLUVIA_NOTHING_LIKE_IT"])
    with pytest.raises(Invalid, match=r"^ALLUVIA_ALLOW_WRITE is not a setting: did you mean ALLUVIA_ALLOW_WRITES\?$"):
        check_settings(["ALLUVIA_ALLOW_WRITE"])


def test_the_known_settings_are_those_of_the_source() -> None:
    found: set[str] = set()
    for folder in ("shared", "functions", "infra", "layers"):
        for file in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r"\bALLUVIA_[A-Z_]*[A-Z]", file.read_text("utf-8")))
    assert found == SETTINGS, "server/setting_names.py lists them"
