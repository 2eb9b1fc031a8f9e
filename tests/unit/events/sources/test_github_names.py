"""Names of GitHub's events by their fields, against the header of each event as GitHub's documentation lists them."""

from __future__ import annotations

import pytest

from alluvia.events.sources.kinds.code_hosts import name_of

COMMON: dict[str, object] = {key: {} for key in ("action", "repository", "sender", "organization", "installation")}


@pytest.mark.parametrize(
    ("name", "fields", "without"),
    [
        ("ping", "zen hook_id hook", "action"),
        ("push", "ref before after base_ref compare commits created deleted forced head_commit pusher", "action"),
        ("create", "ref ref_type master_branch description pusher_type", "action"),
        ("delete", "ref ref_type pusher_type", "action"),
        ("pull_request", "number pull_request", ""),
        ("pull_request", "number pull_request label", ""),
        ("pull_request_review", "pull_request review", ""),
        ("pull_request_review_comment", "pull_request comment", ""),
        ("issues", "issue", ""),
        ("issues", "issue label", ""),
        ("issues", "issue milestone", ""),
        ("issue_comment", "issue comment", ""),
        ("commit_comment", "comment", ""),
        ("discussion", "discussion label", ""),
        ("deployment_status", "deployment deployment_status check_run workflow workflow_run", ""),
        ("deployment", "deployment workflow workflow_run", ""),
        ("workflow_run", "workflow workflow_run", ""),
        ("workflow_job", "workflow_job deployment", ""),
        ("workflow_dispatch", "workflow inputs ref", "action"),
        ("release", "release", ""),
        ("star", "starred_at", ""),
        ("fork", "forkee", "action"),
        ("status", "id sha name target_url context description state commit branches", "action"),
        ("team", "team", ""),
        ("team_add", "team", "action"),
        ("label", "label", ""),
        ("public", "", "action"),
        ("repository", "", ""),
        (None, "alert", ""),
        (None, "", "repository"),
    ],
)
def test_fields_tell_the_name(name: str | None, fields: str, without: str) -> None:
    event = {each: value for each, value in COMMON.items() if each != without} | {key: {} for key in fields.split()}
    assert name_of(event) == name


def test_a_star_that_is_watched_began() -> None:
    assert name_of(COMMON | {"action": "started"}) == "watch"
