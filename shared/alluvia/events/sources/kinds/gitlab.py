"""GitLab's webhooks with a secret token. Pure.

Source: "Webhooks" of GitLab's documentation. With a signing token, GitLab signs as Standard Webhooks do: that is the
kind `standard-webhooks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import Kind, Sample
from alluvia.events.sources.signatures import MISSING, WRONG, same

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

_TOKEN = "x-gitlab-token"  # noqa: S105 - a header's name


class GitLab(Kind):
    """`X-Gitlab-Token`, which is the secret itself."""

    proves_headers = True
    headers = frozenset({"idempotency-key", "x-gitlab-event-uuid", "x-gitlab-event"})

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        token = delivery.headers.get(_TOKEN)
        if not token:
            return MISSING
        return None if same(secret, token) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_TOKEN: secret}

    def sample(self, event_id: str, now_us: int) -> Sample:
        headers = {
            "content-type": "application/json",
            "x-gitlab-event": "Alluvia Test Hook",
            "idempotency-key": event_id,
        }
        return Sample(orjson.dumps({"object_kind": "alluvia_test"}), headers)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        """Identify an event by the key that its retries share; older releases send only the UUID of the event."""
        event_id = delivery.header("idempotency-key") or delivery.header("x-gitlab-event-uuid")
        return Given(event_id, None, delivery.header("x-gitlab-event"))
