"""Mutants of the format, its stores, and the engine that reads it."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "prune files with fields in properties alone by the statistics of their columns",
        "delta/skipping/pruning.py",
        "        return tag_number(file.tags.get(self.tag)) < self.number",
        "        return False",
        ("tests/contract/test_promoted_fields.py",),
    ),
    Mutant(
        "say that a file has fields in their columns, and leave them in properties",
        "delta/promoted_fields.py",
        "texts, columns[field.column] = _settled(texts, field, rows.column(field.column), moving=True)",
        "columns[field.column] = rows.column(field.column)",
        ("tests/contract/test_promoted_fields.py",),
    ),
    Mutant(
        "have DuckDB show the files' paths",
        "engine/duck/relation.py",
        "hive_partitioning=false{options})",
        "hive_partitioning=false, filename='alluvia_path'{options})",
        ("tests/contract/test_engine_names.py",),
    ),
    Mutant(
        "take a file's own column for its number",
        "engine/duck/views.py",
        "        if part.reserved & kinds.keys() or not all(starmap(fits, types)):",
        "        if not all(starmap(fits, types)):",
        ("tests/contract/test_column_names.py",),
    ),
    Mutant(
        "read whatever an external file holds now",
        "store/outside.py",
        "        if PIN in key and info is not None and info.etag != key.partition(PIN)[2]:",
        "        if False:",
        ("tests/unit/operations/tables/test_external.py",),
    ),
    Mutant(
        "write to an attached table",
        "store/wrapper.py",
        "if kind not in _READS:",
        "if False:",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "follow the absolute paths of an attached table",
        "delta/places.py",
        "        if (own := self._own(key)) is not None:\n",
        "        if (own := key) is not None:\n",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "attach what a server may not read",
        "store/outside.py",
        "if self._allowed is not None and not (",
        "if False and not (",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "take one's own commit for another's after a lost answer",
        "delta/log/log.py",
        'is_ours=lambda stored: stored.info.get("txnId") == txn_id',
        "is_ours=lambda _: False",
    ),
    Mutant(
        "take whatever is found for one's own commit",
        "delta/log/log.py",
        'is_ours=lambda stored: stored.info.get("txnId") == txn_id',
        "is_ours=lambda _: True",
    ),
    Mutant(
        "skip the read-back: a lost answer means committed",
        "delta/log/committer.py",
        "        except AnswerLost:\n            sent_unclear = True\n",
        "        except AnswerLost:\n            return None\n",
    ),
    Mutant(
        "skip the read-back: a lost answer means that nothing happened",
        "delta/log/committer.py",
        "        except AnswerLost:\n            sent_unclear = True\n",
        '        except AnswerLost:\n            raise Unavailable("lost") from None\n',
    ),
    Mutant(
        "treat 409 as exists",
        "store/s3/bucket.py",
        "                self._clock.sleep(CONFLICT_WAIT_SECONDS * (attempt + self._clock.uniform()))\n"
        "                continue\n",
        "                return PutResult.EXISTS\n",
    ),
    Mutant(
        "take what was read before a long sleep for new",
        "delta/log/log.py",
        "        self._seen_ms = began_ms\n",
        "        self._seen_ms = self.clock.now_ms()\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "leave a checkpoint whose sidecars clean-up has taken",
        "delta/log/checkpoints/putting.py",
        "    try:\n        check_age()\n",
        "    try:\n        pass\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "resolve a path of a log without asking where it leads",
        "delta/places.py",
        """        return None if plain.startswith("../") else self._own(f"{scheme}{mark}{plain}")\n""",
        """        return f"{scheme}{mark}{plain}"\n""",
        ("tests/contract/test_paths_of_logs.py::test_no_deletion_vector_of_others_is_read",),
    ),
    Mutant(
        "believe a log in the lake that says whose files it shares",
        "delta/places.py",
        'keeper is not None and keeper.details.get(OWNER) == self._root.rstrip("/")',
        "True",
        ("tests/contract/test_paths_of_logs.py::test_a_log_in_the_lake_claims_no_other_table",),
    ),
    Mutant(
        "follow links out of a table's folder",
        "store/directory.py",
        """        if not real.startswith(f"{self._home(key).rstrip('/')}/"):\n""",
        "        if False:\n",
        ("tests/contract/test_links.py::test_no_link_leads_out_of_a_table",),
    ),
    Mutant(
        "take released event ids for none",
        "delta/log/log.py",
        " or (event_ids and version < self._released)",
        "",
        ("tests/unit/delta/log/test_recent_commits.py",),
    ),
    Mutant(
        "forget the sort",
        "delta/data_files/writer.py",
        "return [rows[name] for name in settings.cluster_by or settings.sort_by]",
        "return []",
    ),
    Mutant(
        "commit before the data files are durable",
        "delta/data_files/writer.py",
        "        self._store.put_new_many({self._root + add.path: data for add, data in prepared})\n",
        "        for add, data in prepared:\n            try:\n"
        "                self._store.put(self._root + add.path, data)\n"
        "            except Exception:\n                continue\n",
        (
            "tests/faults/test_fail_at_call.py",
            "tests/faults/test_fail_at_call_of_upkeep.py",
        ),
    ),
    Mutant(
        "an error while reading a commit means that there is none",
        "delta/log/reading.py",
        "        except ObjectNotFound:\n            return None\n\n    def read_commits",
        "        except (ObjectNotFound, Unavailable):\n            return None\n\n    def read_commits",
        (
            "tests/faults/test_fail_at_call.py",
            "tests/faults/test_fail_at_call_of_upkeep.py",
        ),
    ),
    Mutant(
        "take a process that a sent file has ended for a fault of ours",
        "processes/reading.py",
        "            if error.status < 0:",
        "            if error.status < -99:",
        ("tests/functions/test_hostile_uploads.py",),
    ),
    Mutant(
        "take a moment for the one before it",
        "delta/refs.py",
        "if ms <= keeper.moment)",
        "if ms < keeper.moment)",
    ),
    Mutant(
        "keep what has expired",
        "delta/refs.py",
        "return self.expires_ms is None or now_ms < self.expires_ms",
        "return True",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "leave a tag without its files to its readers",
        "verify/verification.py",
        "kept = check_kept(self._handle, objects, oldest, findings)",
        "kept = []",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "mean an older version where the log has forgotten the one of a moment",
        "delta/refs.py",
        "    return newest if newest + 1 in stored_ms or newest == max(stored_ms) else None\n",
        "    return newest\n",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
)
