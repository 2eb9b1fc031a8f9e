"""What GitHub's events are called, by what is in them: the name comes in a header that GitHub does not sign. Pure.

Source: "Webhook events and payloads" of GitHub's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    found = next((name for name, fields in _BY_FIELDS if fields <= event.keys()), None)
    if found is not None or "repository" not in event or not event.keys() <= _OF_ALL:
        return found
    if "action" not in event:
        return "public"
    return "watch" if event["action"] == "started" else "repository"
