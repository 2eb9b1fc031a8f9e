"""Jobs: `POST /q` with `mode=async` or `Prefer: respond-async` (RFC 7240), and `/v1/jobs/{id}` to look, cancel, fetch.

Only a caller with exactly the rights of the sender sees a job. For others, it does not exist.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson

from alluvia.access.claims import TokenClaims, read_claims
from alluvia.access.rights import Rights
from alluvia.clock import datetime_of
from alluvia.errors import Invalid, Unavailable
from alluvia.operations.results.jobs import (
    CANCELLED,
    DONE,
    FAILED,
    QUEUED,
    QueryJob,
    ask_again,
    ask_job,
    end_job,
    find_job,
    take_place,
)
from alluvia.query.formats import format_named
from alluvia.query.parameters import from_json, named_values, to_json
from alluvia.query.typed_parameters import of_parameters, to_parameters
from alluvia.serverless.http import BRANCH_HEADER, Request, Response, TooManyRequests, failure
from alluvia.serverless.job_starting import can_start, start
from alluvia.serverless.query_statements import allowed_statements
from alluvia.serverless.routes.query_fields import ASYNC, EXPIRED, JOB_NUMBERS, MODE, VERSIONS
from alluvia.serverless.routes.query_routes import JOBS_PATH

from .answering import NO_STORE, AnswerForm, Caller, facts, still_there, stored_coding, success
from .large import linked
from .query_request import QueryRequest

KEY_CHARS_MAX = 255
LENT = "lent"
"""Whether the rights of a job are those that a published query lends."""
PLACE_SECONDS = 30
"""When to come back for a place. The time that jobs take is not known."""


def prefers_async(request: Request) -> bool:
    """Whether a request would rather not wait."""
    preferences = request.headers.get("prefer", "").replace(";", ",").split(",")
    return "respond-async" in (each.strip().lower() for each in preferences)


def submit(asked: QueryRequest, wish: AnswerForm, caller: Caller, lent: Rights | None = None) -> Response | None:
    """Take a query in as a job, and answer 202; None where it was only preferred, and is not to be had.

    With rights that a published query has `lent`, it runs with these, and tells nothing but its rows. Raises `Invalid`,
    naming the field, for what no job does or takes, and `TooManyRequests` while too many wait or run.
    """
    insists = asked.mode == ASYNC
    named_values(asked.parameters)  # before they are kept: orjson writes 254 levels
    refused = _refusal(asked, caller)
    if refused is not None:
        if insists:
            raise Invalid(f"{MODE.name}: {refused}")
        return None
    key = caller.request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= KEY_CHARS_MAX:
        raise Invalid(f"Idempotency-Key: send 1 to {KEY_CHARS_MAX} characters")
    request = encode_request(asked, wish)
    owner = owner_of(caller.rights)
    whole = {"request": request, "owner": owner, "rights": _plain(lent or caller.rights), LENT: lent is not None}
    hashed = None if key is None else sha256(orjson.dumps([owner, key])).hexdigest()
    store, clock = caller.lake.store, caller.lake.clock
    job = ask_job(store, clock, whole, hashed)
    if job.asked["request"] != request:
        raise Invalid("Idempotency-Key: it was sent with another request: send a new one")
    if hashed is not None:  # it may have been asked for before
        job = find_job(store, clock, job.id) or job
        if job.failed_in_passing:
            job = ask_again(store, clock, job, whole, hashed)
            job = find_job(store, clock, job.id) or job  # another may have asked, and it has started
    if job.state == QUEUED:
        _start(job, caller, may_be_known=hashed is not None)
    applied = {} if insists else {"Preference-Applied": "respond-async"}
    return facts(shown(job, caller), 202, Location=JOBS_PATH + job.id, **applied)


def _start(job: QueryJob, caller: Caller, *, may_be_known: bool) -> None:
    try:
        _check_place(job, caller)
        start(job.id, _caller_of(caller), caller.settings.caller_jobs)
    except (TooManyRequests, Unavailable) as error:
        if not may_be_known:  # its sender cannot ask for it again: its places are for others
            status = 429 if isinstance(error, TooManyRequests) else 503
            end_job(caller.lake.store, caller.lake.clock, job, FAILED, {"status": status, "error": str(error)})
        raise


def _check_place(job: QueryJob, caller: Caller) -> None:
    """Take the places that a job needs. Raises `TooManyRequests`.

    Callers that are told apart have places of their own, one less than there are for all: none may take them all.
    """
    places, store, clock = caller.settings.job_concurrency, caller.lake.store, caller.lake.clock
    if places is None:
        return
    name, own = _caller_of(caller), min(places - 1, caller.settings.caller_jobs or places)
    if name and own > 0 and not take_place(store, clock, job.id, own, name):
        reason = f"you have {own} jobs queued or running, the limit for one caller: send the job again later"
        raise TooManyRequests(reason, PLACE_SECONDS)
    if not take_place(store, clock, job.id, places):
        reason = f"{places} jobs are queued or running, which is the limit: send the job again later"
        raise TooManyRequests(reason, PLACE_SECONDS)


def _caller_of(caller: Caller) -> str:
    """Return the caller's token or subject; "" for a caller without restrictions."""
    return "" if caller.rights is None else caller.rights.caller


def _refusal(asked: QueryRequest, caller: Caller) -> str | None:
    """Return why a request cannot be a job; None if it can."""
    if caller.settings.max_result_bytes is None or not can_start():
        return "this server runs no jobs: use `alluvia serve` or the stack"
    if caller.lake.branch_name is not None:
        return f"a branch has no jobs: ask it to be answered at once, or leave out {BRANCH_HEADER}"
    if asked.dry_run or allowed_statements(asked.text, writes=True):
        return "a job is one SELECT: send a dry run, several statements, or one that writes without it"
    return None


def look_at_job(caller: Caller, name: str) -> Response:
    """Describe a job."""
    job = _found(name, caller)
    return _missing() if job is None else facts(shown(job, caller))


def cancel_job(caller: Caller, name: str) -> Response:
    """Cancel a job, unless it has ended, and describe it. Its process ends within seconds."""
    job = _found(name, caller)
    if job is None:
        return _missing()
    if job.end is None:
        job = end_job(caller.lake.store, caller.lake.clock, job, CANCELLED, {})
    return facts(shown(job, caller))


def fetch_result(caller: Caller, job_id: str, file: str) -> Response:
    """Answer the result of a job with a link to it, or why there is none, as the query itself would have."""
    job = _found(job_id, caller)
    if job is None:
        return _missing()
    told = {"Cache-Control": NO_STORE}
    state, end = _state(job, caller), job.end or {}
    if state == FAILED:
        return failure(end.get("status", 500), end["error"], **told)
    if state in (CANCELLED, EXPIRED):
        return failure(410, f"the job is {state}: send its query again", **told)
    if state != DONE:
        return failure(404, f"the job is {state}: fetch its result when it is done", **told, **{"Retry-After": "2"})
    form = format_named(job.asked["request"]["format"])
    if file != f"result.{form.suffix}":
        asked = "send its query again with the other format"
        return failure(
            404, f"the result of this job is at {_result_path(job)}, in the format of its query: {asked}", **told
        )
    if end["key"] is None:  # no rows, in a form that has nothing else
        return success(b"", AnswerForm(form), {**end["told"], **told})
    return linked(caller.lake, end["key"], {**end["told"], **told})


def shown(job: QueryJob, caller: Caller) -> dict[str, Any]:
    """Return the description of a job."""
    end = job.end or {}
    told: dict[str, Any] = {"id": job.id, "state": _state(job, caller)}
    moments = {"asked": job.asked["asked_ms"], "started": job.started_ms, "ended": end.get("at_ms")}
    told |= {name: _moment(at_ms) for name, at_ms in moments.items()}
    if told["state"] == DONE:
        told["result"] = _result_path(job)
    if told["state"] == FAILED:
        told |= {"status": end.get("status", 500), "error": end["error"]}
    headers = end.get("told", {})
    told |= {name: orjson.loads(headers[header]) for name, header in JOB_NUMBERS.items() if header in headers}
    return told | ({"versions": headers[VERSIONS]} if VERSIONS in headers else {})


def encode_request(asked: QueryRequest, wish: AnswerForm) -> dict[str, Any]:
    """Return what a job keeps of a request."""
    return {
        "text": asked.text,
        "parameters": to_json(of_parameters(asked.parameters)),
        "format": wish.form.name.lower(),
        "coding": stored_coding(wish),
        "max_bytes": asked.max_bytes,
        "max_seconds": asked.max_seconds,
        "max_result_bytes": asked.max_result_bytes,
    }


def decode_request(job: QueryJob) -> tuple[QueryRequest, AnswerForm]:
    """Return the request that a job keeps."""
    given = dict(job.asked["request"])
    if isinstance(given["parameters"], str):  # versions before this one kept the value itself
        given["parameters"] = to_parameters(from_json(given["parameters"]))
    wish = AnswerForm(format_named(given["format"]), given.pop("coding"))
    return QueryRequest(**given), wish


def rights_of_job(job: QueryJob) -> Rights | None:
    """Return what the sender of a job could do when it was sent."""
    plain = job.asked["rights"]
    return None if plain is None else read_claims(plain).rights


def owner_of(rights: Rights | None) -> str:
    """Return a key shared by all callers with the same rights; "" for callers that may do all."""
    if rights is None:
        return ""
    return sha256(orjson.dumps(_plain(replace(rights, subject="", key="", requests_per_minute=None)))).hexdigest()


def _plain(rights: Rights | None) -> dict[str, Any] | None:
    if rights is None:
        return None
    return TokenClaims(rights.key[:200], rights.subject[:200], 0, 0, rights).plain()


def _found(job_id: str, caller: Caller) -> QueryJob | None:
    job = find_job(caller.lake.store, caller.lake.clock, job_id)
    may = job is not None and (caller.rights is None or owner_of(caller.rights) == job.asked["owner"])
    return job if may else None


def _state(job: QueryJob, caller: Caller) -> str:
    key = None if job.end is None else job.end.get("key")
    return EXPIRED if key is not None and not still_there(caller, key) else job.state


def _missing() -> Response:
    reason = "there is no such job: jobs are gone after a day, and after an erasure"
    return failure(404, reason, **{"Cache-Control": NO_STORE})


def _result_path(job: QueryJob) -> str:
    return f"{JOBS_PATH}{job.id}/result.{format_named(job.asked['request']['format']).suffix}"


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime_of(at_ms).isoformat(timespec="milliseconds")
