"""The statuses of errors of queries, besides those that all functions share."""

from __future__ import annotations

from alluvia.engine.duck.failures import QueryTooCostly, ResultTooLarge
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Invalid,
    PreconditionFailed,
    TableExists,
    TableNotFound,
)
from alluvia.query.formats import NotAcceptable

from .asking import UnsupportedMediaType
from .published import QueryNotFound


class BranchNotFound(Invalid):
    """There is no branch of that name."""


STATUSES: dict[type[AlluviaError], int] = {
    NotAcceptable: 406,
    UnsupportedMediaType: 415,
    ResultTooLarge: 413,
    QueryTooCostly: 422,
    TableExists: 400,
    QueryNotFound: 404,
    BranchNotFound: 404,
    TableNotFound: 404,  # before Conflict: a table that was dropped meanwhile is both
    PreconditionFailed: 412,
    Conflict: 409,
    CommitUnknown: 500,  # not 503, after which clients send the same again
}
