"""Which tests `make test-fast` leaves out, besides those that are marked `slow` where they are written.

Most take a third of a second or more: they prove at length, over the wire or in processes of their own what shorter
tests look at too.
"""

from __future__ import annotations

LEFT_OUT = (
    "tests/cli/test_erasing.py",
    "tests/cli/test_event_files.py",
    "tests/cli/test_newcomer.py",
    "tests/cli/test_progress.py",
    "tests/cli/test_prompt.py",
    "tests/cli/test_rollups.py",
    "tests/cli/test_serve",
    "tests/cli/test_terminal.py",
    "tests/cli/test_tokens.py",
    "tests/clients/",
    "tests/contract/test_column_names.py",
    "tests/contract/test_confinement.py",
    "tests/contract/test_erase.py",
    "tests/contract/test_hostile_queries.py",
    "tests/contract/test_requests_of_many_files.py",
    "tests/contract/test_tables.py",
    "tests/contract/test_verify.py",
    "tests/docs/",
    "tests/faults/",
    "tests/flight/",
    "tests/functions/test_log_lines.py",
    "tests/functions/test_many_tables.py",
    "tests/functions/test_query_statements.py",
    "tests/golden/",
    "tests/ibis/",
    "tests/infra/test_authorization.py",
    "tests/infra/test_cold_imports.py",
    "tests/infra/test_layers.py::test_modules_are_compiled_for_the_functions_python",
    "tests/infra/test_releases.py",
    "tests/processes/",
    "tests/property/",
    "tests/reach/",
    "tests/sql/",
    "tests/unit/duck/test_memory.py",
    "tests/unit/operations/test_claims.py",
    "tests/unit/operations/test_clustered.py",
    "tests/unit/operations/test_folding.py",
    "tests/unit/query/test_planning_cost.py",
    "tests/unit/query/test_pruning_property.py",
    "tests/unit/query/test_rights.py::test_a_query_answers_as_it_does_over_a_copy_of_what_is_shown",
    "tests/unit/sql/test_merge.py::test_a_large_source_reaches_only_files_that_can_hold_its_keys",
    "tests/unit/sql/test_merge.py::test_random_statements_do_what_duckdb_does",
    "tests/unit/sql/test_merge.py::test_what_a_merge_cannot_do",
    "tests/unit/sql/test_parameters.py::test_a_value_comes_back_as_it_was",
    "tests/unit/sql/test_subqueries.py",
    "tests/unit/sql/test_views.py",
    "tests/unit/table/test_window_model.py",
    "tests/unit/verify/test_verify_healthy.py",
)
"""How the names of these tests begin."""
