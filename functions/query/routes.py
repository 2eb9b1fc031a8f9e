"""The routes of the function: a path, its methods, and what takes each."""

from __future__ import annotations

from collections.abc import Callable

from alluvia.serverless.http import Request, Response
from alluvia.serverless.routes import Route

from .answering import Caller
from .asking import posted
from .published import delete_query, list_queries, put_query, run_or_describe
from .reading import answer_posted, read, read_by_hash
from .tables import list_tables, say_ready, show_table

QueryTaker = Callable[[Request, str, Caller], Response]
"""(request, the name in its path or "", who sends it) → answer."""


def run(request: Request, name: str, caller: Caller) -> Response:  # noqa: ARG001
    """Run the query or the statements of a POST."""
    return answer_posted(request, posted(request), caller)


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
    Route("/v1/tables", {"GET": list_tables, "HEAD": list_tables}),
    Route("/v1/tables/{table}", {"GET": show_table, "HEAD": show_table}),
    Route("/readyz", {"GET": say_ready, "HEAD": say_ready}, public=True),
    Route("/openapi.json", {"GET": describe, "HEAD": describe}, public=True),
)
