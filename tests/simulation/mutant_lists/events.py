"""Mutants of events and backfills."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "erase, and forget rejects",
        "events/ingest/erasing.py",
        "rejects=erase(rejects, finder, release_tags=release_tags))",
        "rejects=EraseReport(rejects.newest().version))",
        ("tests/contract/test_erase.py",),
    ),
    Mutant(
        "acknowledge rejects that could not be kept",
        "events/ingest/event_tables.py",
        "    place = rejects_of(catalog, name)\n    known = all_but(_commit(place, rows).new, len(rows))\n",
        "    try:\n        place = rejects_of(catalog, name)\n"
        "        known = all_but(_commit(place, rows).new, len(rows))\n"
        "    except Exception:\n        return set()\n",
        seed=129,
    ),
    Mutant(
        "take a known reject for one that is there",
        "events/ingest/event_tables.py",
        "    return [at for at in known if ids[at] in wanted]\n",
        "    return []\n",
        ("tests/unit/events/ingest/test_rejects_again.py",),
    ),
    Mutant(
        "keep a reject again that a replay has made a row of",
        "events/ingest/event_tables.py",
        "    again = [at for at in gone if at not in settled]\n",
        "    again = gone\n",
        ("tests/unit/events/ingest/test_rejects_again.py",),
    ),
    Mutant(
        "forget which requests the events that are left came with",
        "events/ingest/pipeline.py",
        "self._owners = self._owners[: len(rows.taken)] if one else [self._owners[at] for at in rows.taken]\n",
        "pass\n",
    ),
    Mutant(
        "refuse events by columns that are known no longer to hold",
        "events/ingest/pipeline.py",
        "            if rows.refused and tries_left and not is_newest:",
        "            if False:",
        (
            "tests/unit/events/ingest/test_pipeline.py",
            "tests/unit/events/ingest/test_event_tables.py",
        ),
    ),
    Mutant(
        "give the rejects of a group to its first request",
        "events/ingest/pipeline.py",
        "            self._rejects[at].append(reject)",
        "            self._rejects[0].append(reject)",
    ),
    Mutant(
        "take a group's events for those of its first request",
        "events/ingest/columnar_batch.py",
        "RawEvent(*event[:3], origin, *event[4:])",
        "event",
        ("tests/unit/events/ingest/test_together.py",),
    ),
    Mutant(
        "take a group's blocks for those of its first request",
        "events/ingest/event_rows.py",
        "(part.origin or request).arrival_us",
        "arrival_us",
        ("tests/unit/events/ingest/test_together.py",),
    ),
    Mutant(
        "fail a group for what one of its requests breaks",
        "events/ingest/pipeline.py",
        "if len(requests) == 1 or group.committing:",
        "if True:",
        ("tests/unit/events/ingest/test_together.py",),
    ),
)
