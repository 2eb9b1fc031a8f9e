"""What the routes of branches are, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.operations.branches.branch_changes import CHANGED, CREATED, DROPPED, REPLACED
from alluvia.operations.branches.branch_publish import CONFLICT, FAST_FORWARD, REBASED
from alluvia.operations.transactions.lake_commit import ISOLATION as LEVELS
from alluvia.operations.transactions.lake_commit import SERIALIZABLE
from alluvia.serverless.openapi import (
    COUNT,
    FLAG,
    JSON_TYPE,
    TEXT,
    Json,
    both,
    content,
    in_path,
    in_query,
    operation,
    told,
)

from .branches import AT, DRY_RUN, EXPIRES, ISOLATION, KEY, NAME, TABLE

BRANCHES = "Branches"
_MOMENT: Json = {"type": "string", "format": "date-time"}
_COUNT_OR_NULL: Json = {"type": ["integer", "null"], "minimum": 0}
_BRANCH: Mapping[str, Json] = {
    "name": TEXT,
    "moment": _MOMENT | {"description": "It begins with what the lake held then."},
    "created": _MOMENT,
    "expires": {"type": ["string", "null"], "format": "date-time"},
    "expired": FLAG,
}
_BRANCH_LIST: Json = {
    "type": "array",
    "items": {"type": "object", "properties": dict(_BRANCH), "required": [*_BRANCH]},
}
_CHANGE: Json = {"type": "string", "enum": [CREATED, DROPPED, REPLACED, CHANGED]}
_PAIRS: Json = {
    "type": ["object", "null"],
    "additionalProperties": {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2, "maxItems": 2},
    "description": "What was and what is, by name.",
}
_TYPES: Json = {"type": ["object", "null"], "additionalProperties": TEXT, "description": "Types by name."}
_DIFFERENCE: Mapping[str, Json] = {
    "table": TEXT,
    "change": _CHANGE,
    "base_version": _COUNT_OR_NULL | {"description": "The lake's version that the branch began with."},
    "version": COUNT | {"description": "The branch's version."},
    **dict.fromkeys(("rows_added", "rows_removed"), _COUNT_OR_NULL),
    "rows_changed": _COUNT_OR_NULL | {"description": "Null without columns by which rows are found again."},
    **dict.fromkeys(("files_added", "files_removed"), _COUNT_OR_NULL),
    **dict.fromkeys(("columns_added", "columns_removed"), _TYPES),
    **dict.fromkeys(("columns_changed", "properties"), _PAIRS),
}
_PUBLISHED: Mapping[str, Json] = {
    "table": TEXT,
    "change": _CHANGE,
    "how": {"type": "string", "enum": [FAST_FORWARD, REBASED, CONFLICT]},
    "version": _COUNT_OR_NULL,
    "files_added": COUNT,
    "files_removed": COUNT,
    "conflict": {"type": ["string", "null"], "description": "In a dry run: what stands in the way."},
}
_BRANCH_NAME = in_path("branch", "Its name.")


def _rows(properties: Mapping[str, Json]) -> Json:
    row = {"type": "object", "properties": dict(properties), "required": [*properties]}
    return {"type": "array", "items": row}


BRANCH_OPERATIONS: Mapping[str, Mapping[str, Json]] = {
    "/v1/branches": both(
        operation(
            "list_branches",
            BRANCHES,
            "List the branches, for callers who may read all of the lake",
            {200: told("They, in the order of their names.", {"branches": _BRANCH_LIST}, required=["branches"])},
            errors=(400, 503),
        )
    )
    | {
        "POST": operation(
            "cut_branch",
            BRANCHES,
            "Cut a branch, which begins with what the lake holds",
            {201: told("The branch.", _BRANCH, required=[*_BRANCH])},
            body=content(
                "The branch.",
                {
                    JSON_TYPE: {
                        "type": "object",
                        "properties": {
                            NAME: TEXT,
                            AT: TEXT | {"description": "A moment in the past, or a tag of the lake."},
                            EXPIRES: TEXT | {"description": "How long it is kept: 7d, 12h."},
                        },
                        "required": [NAME],
                        "additionalProperties": False,
                    }
                },
            )
            | {"required": True},
            errors=(400, 404, 410, 415, 503),
        )
    },
    "/v1/branches/{branch}": both(
        operation(
            "show_branch",
            BRANCHES,
            "Tell of a branch",
            {200: told("The branch.", _BRANCH, required=[*_BRANCH])},
            parameters=[_BRANCH_NAME],
            errors=(400, 404, 503),
        )
    )
    | {
        "DELETE": operation(
            "discard_branch",
            BRANCHES,
            "Discard a branch, with all that was written on it and not published",
            {200: told("It is gone.", {"name": TEXT, "discarded": FLAG}, required=["name", "discarded"])},
            parameters=[_BRANCH_NAME],
            errors=(400, 404, 503),
        )
    },
    "/v1/branches/{branch}/diff": both(
        operation(
            "diff_branch",
            BRANCHES,
            "Tell what a branch has changed, by table",
            {
                200: told(
                    "The tables that it has changed and the caller may read. Of one seen in part, most is null.",
                    {"name": TEXT, "tables": _rows(_DIFFERENCE)},
                    required=["name", "tables"],
                )
            },
            parameters=[
                _BRANCH_NAME,
                in_query(TABLE, "This table alone."),
                in_query(KEY, "The columns by which a changed row is found again, with commas between."),
            ],
            errors=(400, 404, 410, 422, 500, 503),
        )
    ),
    "/v1/branches/{branch}/publish": {
        "POST": operation(
            "publish_branch",
            BRANCHES,
            "Commit what a branch has changed to the lake, in one transaction",
            {
                200: told(
                    "What was done to each table, or in a dry run what would be.",
                    {
                        "name": TEXT,
                        "tables": _rows(_PUBLISHED),
                        "rollups": {"type": "array", "items": TEXT, "description": "They follow their sources."},
                        "dry_run": FLAG,
                    },
                    required=["name", "tables", "rollups", "dry_run"],
                )
            },
            parameters=[_BRANCH_NAME],
            body=content(
                "What to do otherwise than by default.",
                {
                    JSON_TYPE: {
                        "type": "object",
                        "properties": {
                            DRY_RUN: FLAG | {"default": False},
                            ISOLATION: {"type": "string", "enum": [*LEVELS], "default": SERIALIZABLE},
                        },
                        "additionalProperties": False,
                    }
                },
            ),
            errors=(400, 404, 409, 410, 415, 422, 500, 503),
        )
    },
}
