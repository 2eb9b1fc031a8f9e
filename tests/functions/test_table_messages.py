"""Which tables a queue's message is about, and which notifications a later one makes needless."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from alluvia.errors import Invalid
from alluvia.serverless.table_messages import Look, looks, message_for, superseded
from tests.samples import payload

LAKE = "s3://alluvia-lake/lake"
V10, V20 = "00000000000000000010", "00000000000000000020"


def notification(key: str, *more: str, bucket: str = "alluvia-lake", event: str = "ObjectCreated:Put") -> str:
    records = [
        {"eventName": event, "s3": {"bucket": {"name": bucket}, "object": {"key": each}}} for each in (key, *more)
    ]
    return json.dumps({"Records": records})


def test_the_sample_as_s3_sends_it() -> None:
    found = [looks(record["body"], LAKE) for record in payload("merge_sqs")["Records"]]
    assert found == [
        [],
        [Look("access_log", 10)],
        [Look("access_log", 20)],
        [Look("github_webhooks/_rejects", 10)],
        [Look("github_webhooks", swept=True), Look("github_webhooks/_rejects", swept=True)],
    ]


@pytest.mark.parametrize(
    ("lake", "key", "expected"),
    [
        (LAKE, f"lake/clicks/_delta_log/{V20}.json", Look("clicks", 20)),
        (f"{LAKE}/", f"lake/clicks/_delta_log/{V20}.json", Look("clicks", 20)),
        (LAKE, f"lake%2Fclicks%2F_rejects%2F_delta_log%2F{V10}.json", Look("clicks/_rejects", 10)),
        ("s3://alluvia-lake", f"clicks/_delta_log/{V10}.json", Look("clicks", 10)),
        ("s3a://alluvia-lake/my lake/(1)", f"my+lake/%281%29/clicks/_delta_log/{V10}.json", Look("clicks", 10)),
        ("/srv/lake", f"any/where/clicks/_delta_log/{V10}.json", Look("clicks", 10)),
        ("s3://alluvia-lake", f"lake/clicks/_delta_log/{V10}.json", None),
        (LAKE, f"lake/team/clicks/_delta_log/{V10}.json", None),
        (LAKE, f"other/clicks/_delta_log/{V10}.json", None),
        (LAKE, f"lake/clicks/_rejects/_rejects/_delta_log/{V10}.json", None),
        (LAKE, f"lake/_delta_log/{V10}.json", None),
        (LAKE, f"lake/Clicks/_delta_log/{V10}.json", None),
        (LAKE, f"lake/clicks/_delta_log/{V10}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a10.json", None),
        (LAKE, "lake/clicks/_delta_log/10.json", None),
        (LAKE, f"lake/clicks/{V10}.json", None),
        (LAKE, "lake/clicks/day=2026-01-01/0.json", None),
    ],
)
def test_a_table_is_what_has_a_commit_directly_below_the_lake(lake: str, key: str, expected: Look | None) -> None:
    assert looks(notification(key), lake) == ([expected] if expected else [])


def test_one_message_may_hold_many_notifications() -> None:
    body = notification(f"lake/a/_delta_log/{V10}.json", f"lake/b/_delta_log/{V20}.json", "lake/a/part-0.json")
    assert looks(body, LAKE) == [Look("a", 10), Look("b", 20)]


def test_what_is_removed_is_not_looked_at() -> None:
    assert looks(notification(f"lake/a/_delta_log/{V10}.json", event="ObjectRemoved:Delete"), LAKE) == []


def test_our_own_messages_come_back_as_they_were_sent() -> None:
    assert looks(message_for("a").decode(), LAKE) == [Look("a")]
    assert looks(message_for("a", swept=True).decode(), LAKE) == [Look("a", swept=True), Look("a/_rejects", swept=True)]
    assert looks(message_for("a/_rejects").decode(), LAKE) == [Look("a/_rejects")]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "neither a notification of S3 nor one that names a table"),
        ('{"table": "../a"}', "neither a notification"),
        ('{"table": 5}', "neither a notification"),
        ('{"table": "a", "sweep": "yes"}', "sweep: expected true or false"),
        ('{"Records": {}}', "expected a list of S3's notifications"),
        ('{"Records": [5]}', "expected S3's notifications"),
        ('{"Records": [{"s3": {"object": {"key": "k"}}, "eventName": "ObjectCreated:Put"}]}', "s3.bucket.name"),
        ('{"Records": [{"s3": [], "eventName": "ObjectCreated:Put"}]}', "s3.bucket.name"),
        (notification("k", bucket="other"), "another bucket than the lake's: other"),
    ],
)
def test_other_messages_are_refused_with_the_reason(body: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        looks(body, LAKE)


def test_keys_and_names_must_be_text() -> None:
    record: dict[str, Any] = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": 5}}}
    with pytest.raises(Invalid, match="must be text"):
        looks(json.dumps({"Records": [record]}), LAKE)


@pytest.mark.parametrize(
    ("version", "newest", "expected"),
    [
        (10, 10, False),
        (10, 19, False),
        (10, 20, True),
        (10, 5, False),
        (0, 9, False),
        (0, 10, True),
        (90, 100, True),
        (100, 190, False),
        (100, 199, False),
        (100, 200, True),
        (190, 199, False),
        (1000, 1999, False),
        (1000, 2000, True),
    ],
)
def test_a_notification_gives_way_to_the_next_that_is_as_round(version: int, newest: int, expected: bool) -> None:
    assert superseded(version, newest) is expected


@pytest.mark.parametrize("behind", [0, 3, 10, 47, 312, 905])
def test_however_late_messages_come_few_are_worked_on_and_none_for_ever(behind: int) -> None:
    """A table with 10,000 commits, each notification of which is read so many commits later."""
    worked = [version for version in range(0, 10_000, 10) if not superseded(version, version + behind)]
    gaps = [later - earlier for earlier, later in pairwise(worked)]
    assert max(gaps) <= 10 * max(10, behind)
    # Nobody works on a table twice within the time that messages wait.
    assert min(gaps) > behind or behind < 10


@pytest.mark.parametrize("newest", [0, 9, 10, 35, 199, 1999, 4321])
def test_of_a_backlog_one_message_for_each_power_of_ten_is_left(newest: int) -> None:
    left = [version for version in range(0, newest + 1, 10) if not superseded(version, newest)]
    assert 1 <= len(left) <= max(1, len(str(newest)) - 1)
    assert newest - left[-1] < 10
