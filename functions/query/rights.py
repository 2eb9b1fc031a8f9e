"""What a request may ask for: the right to write is one of its own."""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.errors import Invalid
from alluvia.sql.statements import Statement


class Forbidden(Invalid):
    """The statement is not allowed here: the message says where it is."""


def check_allowed(statements: Sequence[Statement], *, writes: bool) -> None:
    """Raise `Forbidden` for what writes, unless it may, and for VACUUM."""
    for statement in statements:
        name = statement.kind.upper()
        if statement.writes and not writes:
            raise Forbidden(
                f"{name} writes, and only reads are allowed here. To allow writes, start `alluvia serve` with "
                "--allow-writes; in AWS, deploy with alluvia:sql_writes=true and send it to POST /sql "
                "(ALLUVIA_ALLOW_WRITES=true and a role that may write, for a function of your own)"
            )
        if statement.kind == "vacuum":
            raise Forbidden("VACUUM deletes files, which no request may: run `alluvia vacuum`, or the vacuum function")
