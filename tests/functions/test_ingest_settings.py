"""The settings of the ingest function."""

from __future__ import annotations

import pytest

from alluvia.errors import Invalid
from alluvia.events.ingest.values import Limits
from functions.ingest.handler import handler
from functions.ingest.settings import EVENTS_MAX, IngestSettings


def test_defaults() -> None:
    assert IngestSettings.read({}) == IngestSettings(None, create_tables=False, limits=Limits(events=EVENTS_MAX))


def test_all_of_them() -> None:
    given = {
        "ALLUVIA_MODE": "queued",
        "ALLUVIA_QUEUE_URL": "https://sqs/q",
        "ALLUVIA_CREATE_TABLES": "true",
        "ALLUVIA_BODY_LIMIT_BYTES": "1",
        "ALLUVIA_INFLATED_LIMIT_BYTES": "2",
        "ALLUVIA_EVENT_LIMIT_BYTES": "3",
        "ALLUVIA_CREATE_TABLES_MAX": "4",
    }
    wanted = IngestSettings("https://sqs/q", create_tables=True, limits=Limits(1, 2, 3, EVENTS_MAX), tables_max=4)
    assert IngestSettings.read(given) == wanted


def test_direct_mode_needs_no_queue() -> None:
    given = {"ALLUVIA_MODE": "direct", "ALLUVIA_QUEUE_URL": "https://sqs/q"}
    assert IngestSettings.read(given).queue_url is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ALLUVIA_MODE": "both"}, "ALLUVIA_MODE is 'both': use direct or queued"),
        ({"ALLUVIA_MODE": "queued"}, "ALLUVIA_QUEUE_URL is not set"),
        ({"ALLUVIA_CREATE_TABLES": "yes"}, "ALLUVIA_CREATE_TABLES is 'yes'"),
        ({"ALLUVIA_BODY_LIMIT_BYTES": "0"}, "ALLUVIA_BODY_LIMIT_BYTES"),
        ({"ALLUVIA_INFLATED_LIMIT_BYTES": "1.5"}, "ALLUVIA_INFLATED_LIMIT_BYTES"),
        ({"ALLUVIA_EVENT_LIMIT_BYTES": "-1"}, "ALLUVIA_EVENT_LIMIT_BYTES"),
        ({"ALLUVIA_CREATE_TABLES_MAX": "0"}, "ALLUVIA_CREATE_TABLES_MAX is '0': use a whole number of tables from 1"),
    ],
)
def test_a_bad_setting_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        IngestSettings.read(given)


def test_the_function_does_not_start_without_a_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_LAKE", raising=False)
    with pytest.raises(Invalid, match="ALLUVIA_LAKE is not set"):
        handler({"Records": []}, None)
