"""Mutants of appends, ingestion and changes of rows."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "ignore the event ids that commits have in files",
        "operations/dedup.py",
        "for commit in window.files(undone, after):",
        "for commit in window.files(undone, window.version):",
    ),
    Mutant(
        "look into files of event ids only before the first race",
        "operations/append/ingest.py",
        "        self._looked_up = window.version\n",
        "        self._looked_up = 1 << 62\n",
    ),
    Mutant(
        "let a backfill commit events that another has in files",
        "operations/dedup.py",
        "        return handle.store.get(handle.root + commit.files.name(number))\n",
        "        return None\n",
    ),
    Mutant(
        "commit files that were written however long ago",
        "operations/append/append.py",
        "age_ms_max)\n    _check_young(handle, adds)\n",
        "age_ms_max)\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "commit files that grew old in a race",
        "operations/append/append.py",
        "        _check_young(handle, adds)\n        return changes\n",
        "        return changes\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "begin to commit for all once their rows are in a file",
        "operations/append/group_commit.py",
        "commit = transaction.commit(changes, after_loss",
        "commit = self._handle.transaction(snapshot).commit(changes, after_loss",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "erase with deletion vectors",
        "operations/rows/rewriting.py",
        "snapshot.settings.deletion_vectors and not edit.erases",
        "snapshot.settings.deletion_vectors",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "leave rows that a deletion vector has deleted",
        "operations/rows/rewriting.py",
        "        if not hits.changed and not self.edit.erases:\n",
        "        if not hits.changed:\n",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "commit files that vacuum may have taken meanwhile",
        "operations/rows/parts.py",
        " and part.begun_ms >= young_ms]",
        "]",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "look keys up in memory that lose digits there",
        "operations/rows/keyed_merge.py",
        "        if pa.types.is_float32(schema.field(mine).type) and",
        "        if pa.types.is_float16(schema.field(mine).type) and",
        ("tests/unit/sql/test_merge.py",),
    ),
    Mutant(
        "give each row that is updated the values of every clause",
        "operations/rows/merge.py",
        "            here = pc.equal(hits.clauses, pa.scalar(number, CLAUSE))\n",
        "            here = pc.is_valid(hits.clauses)\n",
        ("tests/unit/sql/test_merge.py",),
    ),
    Mutant(
        "let several clauses apply to a pair, of which the last counts",
        "operations/rows/keyed_merge.py",
        "            here = pc.and_(paired, pc.is_null(clauses))\n",
        "            here = paired\n",
        ("tests/unit/sql/test_merge.py",),
    ),
    Mutant(
        "take another event under a known id for a duplicate",
        "operations/append/ingest.py",
        "        elif content not in known and UNKNOWN not in known:\n",
        "        elif False:\n",
    ),
    Mutant(
        "take another event under an id of the same batch for a duplicate",
        "operations/append/ingest.py",
        "            elif first[fingerprint] != content:\n",
        "            elif False:\n",
    ),
    Mutant(
        "no older index where clean-up took a commit",
        "operations/dedup.py",
        "            window, whole = _from_index(log, at, version, rules)\n",
        "            whole = False\n",
        ("tests/unit/operations/append/test_ingest_window.py",),
    ),
    Mutant(
        "drop a tombstone early",
        "operations/checkpointing.py",
        "snapshot.settings.file_retention_ms - TOMBSTONES_LONGER_MS",
        "snapshot.settings.file_retention_ms + 1_800_000",
        seed=271,
    ),
    Mutant(
        "forget the winners' ids after a lost race",
        "operations/append/ingest.py",
        "        self._look_up([self._prints[at] for at in before])\n",
        "",
    ),
    Mutant(
        "let an event in twice that stands in one batch twice",
        "operations/append/ingest.py",
        "            if fingerprint not in first:\n",
        "            if True:\n",
    ),
    Mutant(
        "do not follow the window",
        "operations/dedup.py",
        "        window.follow(commits)\n",
        "        window.version = state.version\n",
    ),
    Mutant(
        "the dedup window by this machine's clock",
        "operations/dedup.py",
        "        window.follow(commits)\n",
        "        window.follow(commits)\n        window._time_ms = handle.clock.now_ms()\n        window.obey(rules)\n",
        ("tests/faults/test_clocks.py",),
    ),
    Mutant(
        "a cold window from the commits alone, without the checkpoint's index",
        "operations/dedup.py",
        "            window = read_index(log.store.get(log.root + name), name, rules, start)\n",
        "            window = DedupWindow(rules, start)\n",
    ),
    Mutant(
        "an index that clean-up took means that there was none",
        "operations/dedup.py",
        "        if whole:\n            return window\n",
        "        return window\n",
        ("tests/unit/operations/append/test_ingest_window.py",),
    ),
    Mutant(
        "the checkpoint before its window",
        "operations/checkpointing.py",
        "            handle.store.put(handle.root + index_name(snapshot.version), write_index(window))\n"
        "        after_ms = tombstones_after_ms(snapshot, handle.clock.now_ms())\n"
        "        handle.log.checkpoint(state, after_ms, form_of(snapshot), v2=v2)\n",
        "            pass\n"
        "        after_ms = tombstones_after_ms(snapshot, handle.clock.now_ms())\n"
        "        handle.log.checkpoint(state, after_ms, form_of(snapshot), v2=v2)\n"
        "        if EVENT_ID in snapshot.schema.names:\n"
        "            handle.store.put(handle.root + index_name(snapshot.version), write_index(window))\n",
    ),
    Mutant(
        "look at no event of the group's other requests",
        "operations/append/ingest.py",
        "            if fingerprint not in first:",
        "            if True:",
    ),
    Mutant(
        "store rows that were made for other columns",
        "operations/append/ingest.py",
        "            raise _other_columns(self._handle)",
        "            pass",
        (
            "tests/unit/events/ingest/test_pipeline.py",
            "tests/unit/events/ingest/test_event_tables.py",
        ),
    ),
    Mutant(
        "take an offer whose event ids are known",
        "operations/append/group_commit.py",
        "known = set(window.held([each for offer in offers for each in offer.prints], self._undone))",
        "known = set[bytes]()",
    ),
    Mutant(
        "take two offers that bring the same event",
        "operations/append/group_commit.py",
        "                known.update(offer.prints)\n",
        "",
    ),
    Mutant(
        "commit offers again that another has taken meanwhile",
        "operations/append/group_commit.py",
        "return changes if len(self._admitted(group)) == len(group) else None",
        "return changes",
    ),
    Mutant(
        "do not look whether one's own offer was taken",
        "operations/append/group_commit.py",
        "                if taken is not None:\n",
        "                if False:\n",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "forget the event ids of offers",
        "operations/append/group_commit.py",
        "**encode_event_ids(prints, contents), **taken_info",
        "**encode_event_ids(self._offer.prints, self._offer.contents), **taken_info",
    ),
    Mutant(
        "take offers whose owners have gone",
        "operations/append/group_commit.py",
        "if each.modified_ms >= oldest_ms)",
        ")",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "answer that rows on offer were refused when the store fails",
        "operations/append/group_commit.py",
        "        if owner.refused:\n            raise\n",
        "        raise\n",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "judge the event ids of a branch by its commits alone",
        "operations/dedup.py",
        "    now_ms = max(handle.log.refresh().timestamp_ms, handle.clock.now_ms())\n",
        "    now_ms = handle.log.refresh().timestamp_ms\n",
        ("tests/unit/operations/dedup/test_known_events.py",),
    ),
)
