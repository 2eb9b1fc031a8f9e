"""Webhooks of GitHub and GitLab. Pure.

Source: "Validating webhook deliveries" and "Webhook events and payloads" of GitHub's documentation. GitHub signs the
body, and no time, nor what is in headers: the delivery's id and the event's name. So the body's bytes are the identity,
which a redelivery repeats, and the name is what the event's fields tell.

Source: "Webhooks" of GitLab's documentation. With a signing token, GitLab signs as Standard Webhooks do: that is the
kind `standard-webhooks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import MISSING, WRONG, Kind, Sample, SignedBody, mac, same, to_bytes
from alluvia.events.sources.kinds.services import json_or_form, unwrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.kinds.base import Delivery

_OF_ALL = frozenset({"action", "changes", "enterprise", "installation", "organization", "repository", "sender"})
_NAMES = (
    ("ping", "zen hook_id"),
    ("push", "ref before after commits"),
    ("create", "ref ref_type master_branch"),
    ("delete", "ref ref_type pusher_type"),
    ("pull_request_review_comment", "pull_request comment"),
    ("pull_request_review_thread", "pull_request thread"),
    ("pull_request_review", "pull_request review"),
    ("pull_request", "pull_request number"),
    ("issue_comment", "issue comment"),
    ("issues", "issue"),
    ("sub_issues", "sub_issue parent_issue"),
    ("discussion_comment", "discussion comment"),
    ("discussion", "discussion"),
    ("commit_comment", "comment"),
    ("workflow_job", "workflow_job"),
    ("deployment_protection_rule", "deployment_callback_url"),
    ("deployment_status", "deployment deployment_status"),
    ("deployment", "deployment"),
    ("check_run", "check_run"),
    ("check_suite", "check_suite"),
    ("workflow_run", "workflow_run"),
    ("workflow_dispatch", "workflow inputs ref"),
    ("repository_dispatch", "client_payload branch"),
    ("release", "release"),
    ("fork", "forkee"),
    ("star", "starred_at"),
    ("gollum", "pages"),
    ("page_build", "build"),
    ("status", "sha state context"),
    ("code_scanning_alert", "alert commit_oid"),
    ("secret_scanning_alert_location", "alert location"),
    ("membership", "member team scope"),
    ("member", "member"),
    ("team", "team action"),
    ("team_add", "team repository"),
    ("org_block", "blocked_user"),
    ("label", "label"),
    ("milestone", "milestone"),
    ("merge_group", "merge_group"),
    ("package", "package"),
    ("registry_package", "registry_package"),
    ("repository_ruleset", "repository_ruleset"),
    ("repository_advisory", "repository_advisory"),
    ("security_advisory", "security_advisory"),
    ("branch_protection_rule", "rule"),
    ("installation_repositories", "installation repositories_added"),
    ("sponsorship", "sponsorship"),
    ("marketplace_purchase", "marketplace_purchase"),
    ("projects_v2_item", "projects_v2_item"),
    ("projects_v2", "projects_v2"),
)
_BY_FIELDS = tuple((name, frozenset(fields.split())) for name, fields in _NAMES)
"""Names with the fields that only such events have, and those before them in this list."""


def name_of(event: Mapping[str, object]) -> str | None:
    """Return what an event is called, as `X-GitHub-Event` has it; None for one that its fields do not tell."""
    known_name = next((name for name, fields in _BY_FIELDS if fields <= event.keys()), None)
    if known_name is not None or "repository" not in event or not event.keys() <= _OF_ALL:
        return known_name
    if "action" not in event:
        return "public"
    return "watch" if event["action"] == "started" else "repository"


class GitHub(SignedBody):
    """`X-Hub-Signature-256` over the body. A form has the event in its field `payload`."""

    at_sender = "Settings → Webhooks: the address as payload URL, and the secret"
    header = "x-hub-signature-256"

    def signature(self, secret: str, body: bytes) -> str:
        return f"sha256={mac(to_bytes(secret), body).hex()}"

    def sample(self, event_id: str, now_us: int) -> Sample:
        body = orjson.dumps({"zen": "Keep it logically awesome.", "hook_id": 1, "note": event_id})
        return Sample(
            body, {"content-type": "application/json", "x-github-delivery": event_id, "x-github-event": "ping"}
        )

    def body_format(self, body: bytes) -> str:
        return json_or_form(body)

    def event(self, value: dict[str, object]) -> dict[str, object]:
        return unwrapped(value)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        return Given(event=name_of(value))


_TOKEN = "x-gitlab-token"  # noqa: S105 - a header's name


class GitLab(Kind):
    """`X-Gitlab-Token`, which is the secret itself."""

    at_sender = "Settings → Webhooks: the address as URL, and the secret as secret token"
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
