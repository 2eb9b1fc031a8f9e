"""The routes of the function: a path, its methods, and what takes each."""

from __future__ import annotations

from collections.abc import Callable

from alluvia.serverless.http import Request, Response
from alluvia.serverless.routes import Route

from .answering import Caller, wanted
from .asking import ASYNC, posted
from .published import delete_query, list_queries, put_query, run_or_describe
from .readiness import say_ready
from .reading import answer_posted, read, read_by_hash
from .tables import list_tables, show_table

QueryTaker = Callable[[Request, str, Caller], Response]
"""(request, the name in its path or "", who sends it) → answer."""


def run(request: Request, name: str, caller: Caller) -> Response:  # noqa: ARG001
    """Run the query or the statements of a POST."""
    asked = posted(request)
    if asked.mode == ASYNC or "prefer" in request.headers:
        from .jobs import prefers_async, submit

        if asked.mode == ASYNC or prefers_async(request):
            taken = submit(asked, wanted(asked, request.headers), caller, request.headers)
            if taken is not None:
                return taken
    return answer_posted(request, asked, caller)


def take_job(request: Request, name: str, caller: Caller) -> Response:
    """Look at a job, or cancel it."""
    from .jobs import cancel_job, look_at_job  # which queries do not need

    return (cancel_job if request.method == "DELETE" else look_at_job)(request, name, caller)


def take_result(request: Request, name: str, caller: Caller) -> Response:
    """Fetch the result of a job."""
    from .jobs import fetch_result

    return fetch_result(request, name, caller)


def take_branches(request: Request, name: str, caller: Caller) -> Response:
    """List the branches, or cut one."""
    from . import branches  # which queries do not need

    return branches.take_branches(request, name, caller)


def take_branch(request: Request, name: str, caller: Caller) -> Response:
    """Tell of a branch, or discard it."""
    from . import branches

    return branches.take_branch(request, name, caller)


def diff_branch(request: Request, name: str, caller: Caller) -> Response:
    """Tell what a branch has changed."""
    from .branches import diff_branch

    return diff_branch(request, name, caller)


def publish_branch(request: Request, name: str, caller: Caller) -> Response:
    """Publish a branch."""
    from .branches import publish_branch

    return publish_branch(request, name, caller)


def describe(request: Request, name: str, caller: Caller) -> Response:  # noqa: ARG001
    """Answer with the OpenAPI document."""
    from .openapi import tell_openapi  # which no query needs

    return tell_openapi(request, caller)


_READ: dict[str, QueryTaker] = {"GET": read, "HEAD": read}
_READ_BY_HASH: dict[str, QueryTaker] = {"GET": read_by_hash, "HEAD": read_by_hash}
_PUBLISHED: dict[str, QueryTaker] = {
    "GET": run_or_describe,
    "HEAD": run_or_describe,
    "PUT": put_query,
    "DELETE": delete_query,
}
ROUTES: tuple[Route[QueryTaker], ...] = (
    Route("/q", {"POST": run, **_READ}),
    Route("/q/{hash}", _READ_BY_HASH),
    Route("/sql", {"POST": run}),
    Route("/v1/queries", {"GET": list_queries, "HEAD": list_queries}),
    Route("/v1/queries/{query}", _PUBLISHED),
    Route("/v1/jobs/{job}", {"GET": take_job, "HEAD": take_job, "DELETE": take_job}),
    Route("/v1/jobs/{job}/{result}", {"GET": take_result, "HEAD": take_result}),
    Route("/v1/tables", {"GET": list_tables, "HEAD": list_tables}),
    Route("/v1/tables/{table}", {"GET": show_table, "HEAD": show_table}),
    Route("/v1/branches", {"GET": take_branches, "HEAD": take_branches, "POST": take_branches}),
    Route("/v1/branches/{branch}", {"GET": take_branch, "HEAD": take_branch, "DELETE": take_branch}),
    Route("/v1/branches/{branch}/diff", {"GET": diff_branch, "HEAD": diff_branch}),
    Route("/v1/branches/{branch}/publish", {"POST": publish_branch}),
    Route("/readyz", {"GET": say_ready, "HEAD": say_ready}, public=True),
    Route("/openapi.json", {"GET": describe, "HEAD": describe}, public=True),
)
