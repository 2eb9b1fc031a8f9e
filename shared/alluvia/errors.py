"""Every error that Alluvia raises on purpose, grouped by what the caller should do about it."""

from __future__ import annotations

from collections.abc import Sequence

MESSAGE_CHARS_MAX = 2000


def cut(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Return a text, cut with an ellipsis if it is too long: messages may echo what a caller sent."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


class AlluviaError(Exception):
    """Base of all errors of this library.

    `at_limit` says that there was too little time, memory or disk: where there is more, the same work may be done.
    `partly` says that a part of the request took effect: the message says which.
    """

    at_limit = False
    partly = False


class Invalid(AlluviaError):
    """The caller's input is wrong: the message names the field and the fix."""


class Forbidden(Invalid):
    """The caller may not do this: the message says why. `scope` is the right that it lacks, if one would do."""

    def __init__(self, message: str, *, scope: str | None = None) -> None:
        super().__init__(message)
        self.scope = scope


class ColumnUsed(Invalid):
    """SQL of the lake would fail, or mean something else, after a change of columns. `uses` are its names and why."""

    def __init__(self, change: str, uses: Sequence[tuple[str, str]]) -> None:
        self.change = change
        self.uses = uses
        super().__init__(self.said("pass force=True"))

    def said(self, otherwise: str, *, named: bool = True) -> str:
        """Return the message, with the way to change the columns all the same. Not every caller may see names."""
        count = f"{len(self.uses)} stored {'query' if len(self.uses) == 1 else 'queries'}"
        uses = "; ".join(f"{name}: {reason}" for name, reason in self.uses) if named else count
        return f"{self.change} would break or change {uses}. Change them first, or {otherwise} to do it all the same"


class ReadOnly(Invalid):
    """Nothing can be written to the table here: it is attached, and only its own lake writes to it."""


class StoreRefused(Invalid):
    """The store refuses until its operator corrects the URI, credentials, policy or mount: the message says which."""


class BranchGone(Invalid):
    """The branch was discarded or has expired: what was written on it meanwhile is lost. Cut another."""


class Unsupported(AlluviaError):
    """The table needs a feature that this library does not have: the message names it."""


class NotInstalled(AlluviaError, ImportError):
    """An optional package is missing: the message says what to install."""


class Corrupt(AlluviaError):
    """A file of the table is damaged: the message names the file and what is wrong with it."""


class Unavailable(AlluviaError):
    """The store did not answer, or refused for now: try again."""


class NoTimeLeft(Unavailable):
    """The invocation of a function has too little time left for a request to the store."""

    at_limit = True


class NotDeleted(Unavailable):
    """The store did not delete some objects, whose keys are `keys`; it deleted all others."""

    def __init__(self, keys: Sequence[str], reason: str) -> None:
        super().__init__(f"{len(keys)} objects were not deleted, such as {keys[0]}: {reason}")
        self.keys = tuple(keys)


class CommitUnknown(AlluviaError):
    """It is unknown whether a commit succeeded; nothing was deleted."""


class AnswerLost(Unavailable):
    """A conditional write got no clear answer: it may have taken effect. Read the key back before going on."""


class ObjectNotFound(AlluviaError):
    """No object with that key."""


class KeyTaken(AlluviaError):
    """A new object's key is taken by an object with other content, which stays as it is."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} exists already, with other content: it was not written over")
        self.key = key


class TableNotFound(AlluviaError):
    """The lake has no table of that name."""


class TableExists(AlluviaError):
    """The lake already has a table of that name."""


class VersionNotFound(AlluviaError):
    """The table has not reached that version or time."""


class VersionExpired(AlluviaError):
    """The version existed, but retention has removed what it needs: the message names the oldest one left."""


class Conflict(AlluviaError):
    """Another transaction won, and this one is no longer valid: plan again on the new version."""


class ConcurrentAppend(Conflict):
    """A winner added a file that may contain rows that this transaction has read."""


class ConcurrentDeleteRead(Conflict):
    """A winner removed a file that this transaction has read."""


class ConcurrentDeleteDelete(Conflict):
    """A winner removed a file that this transaction removes too."""


class FilesCompacted(ConcurrentDeleteDelete):
    """A winner moved the rows of a file that this transaction changes into another file: the rows are still there."""


class MetadataChanged(Conflict):
    """A winner changed the table's metadata."""


class ProtocolChanged(Conflict):
    """A winner changed the table's protocol."""


class ConcurrentTransaction(Conflict):
    """A winner recorded the same application transaction: this one is already applied."""


class ConcurrentDomain(Conflict):
    """A winner changed a metadata domain that this transaction changes too."""


class TransactionExpired(Conflict):
    """The transaction is older than its maximum age: start it again."""


class PreconditionFailed(Conflict):
    """What is to be replaced is not what the caller expects: look at it, and decide again."""


class BranchConflict(Conflict):
    """A branch cannot be published as it is: the same call again would find the same."""


class TableDropped(Conflict, TableNotFound):
    """A winner dropped the table."""
