# The gate and its parts. `make test` runs all of it, from a fresh clone with only Python 3.11+ and root or a JDK.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# The markers of tests that need more than Python.
OUTSIDE := broker or spark or peer or browser

SETUP := $(VENV)/.made-from-pyproject

# The environment has the newest zeep. The oldest one that pyproject.toml allows comes before it on the path of one test
# run; it imports a module that Python has deprecated since, which is not our failure.
OLDEST_ZEEP = $(shell $(BIN)/python -c 'import sys; print("4.3.0" if sys.version_info >= (3, 13) else "4.2.0")')
ZEEP := build/zeep-oldest
BROKERS := $(patsubst %,build/%/.fetched,activemq artemis qpid jolokia joram cxf s3proxy)
STORES := $(patsubst %,build/%/.fetched,hdfs s3a)
AZURITE := build/azurite/.fetched
PACKAGES := $(patsubst %,build/%/.fetched,xml-conformance rhea report-page pyright)

.PHONY: help setup lock java node browser brokers stores rabbitmq packages soak kills fuzz sanitize test test-protocol test-wires test-inside test-replay test-broker-wires test-broker-calls test-broker-systems test-spark test-peers test-oldest-zeep check lint docs pictures demo bench journey clean
.DELETE_ON_ERROR:

help:
	@echo 'make test     run the gate: format, lint, types, all tests, with real brokers and Spark'
	@echo 'make check    run the part of the gate that needs no broker, no Java and no Node.js'
	@echo 'make fuzz     run random attacks on all code that reads external input: about twenty minutes; FUZZ="--seed 1"'
	@echo '              repeats a run, FUZZ="--only amqp smqp --cases 1000" runs a part'
	@echo 'make sanitize run the AMQP tests with proton compiled to abort on misuse of memory; needs gcc'
	@echo 'make soak     run failures of brokers, services and network under load, with many callers: about three hours;'
	@echo "              SOAK='--only kills' runs one step, SOAK=--small runs all steps with minimal load"
	@echo "make kills    run the first step of make soak; KILLS='--only amqp/artemis --seed 3 --calls 500' runs a part"
	@echo 'make demo     run a call from end to end; its output is in build/demo'
	@echo 'make bench    measure calls per second over a real ActiveMQ, safe and unsafe, and the cost of the parts'
	@echo 'make journey  install each extra alone, do what it is for, and write its weight into docs/install.md: some minutes'
	@echo 'make docs     write the API reference from the docstrings: docs/api'
	@echo 'make pictures take the picture of a report that the README shows: docs/images'
	@echo 'make setup    make the virtual environment in $(VENV), as pinned in requirements.lock'
	@echo 'make lock     pin the newest versions that pyproject.toml allows; needs a network'
	@echo 'make java     check for a JDK and Maven; as root install them'
	@echo 'make brokers  fetch ActiveMQ Classic, Artemis, Qpid, the agent that reads their counters, the JMS tests of Joram, CXF, and an S3 server'
	@echo 'make stores   fetch what make soak replays logs from: HDFS, Azurite, and the S3 client of Hadoop'
	@echo 'make rabbitmq fetch RabbitMQ 4 in a Debian of its own, for make soak; as root on Debian'
	@echo 'make packages fetch the W3C XML conformance data, rhea (another AMQP client), axe-core, and pyright'
	@echo 'make browser  check for Chromium, which opens the report of a replay; as root install it'
	@echo 'make clean    remove all generated files'

setup: $(SETUP)

$(SETUP): pyproject.toml requirements.lock
	scripts/need-python.sh $(PYTHON)
	scripts/need-c.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --requirement requirements.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

# Pin all installed packages, each file by its hash, for every Python that pyproject.toml allows.
lock:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes --no-header \
	  --output-file requirements.lock pyproject.toml

java:
	scripts/need-java.sh

brokers: $(BROKERS)

stores: $(STORES) $(AZURITE)

rabbitmq: build/rabbitmq/.fetched

build/rabbitmq/.fetched: scripts/need-rabbitmq.sh
	scripts/need-rabbitmq.sh $(@D)
	test -n "$$RABBITMQ_URL" || touch $@

# `java` is an order-only prerequisite: it is checked first, but the check does not make the jars out of date.
$(BROKERS) $(STORES): build/%/.fetched: tests/peers/%/pom.xml | java
	rm -rf $(@D)
	mvn --batch-mode --quiet --file $< generate-resources
	touch $@

node:
	scripts/need-node.sh

browser:
	scripts/need-browser.sh

packages: $(PACKAGES)

$(PACKAGES) $(AZURITE): build/%/.fetched: tests/peers/%/package.json tests/peers/%/package-lock.json | node
	rm -rf $(@D)
	mkdir -p $(@D)
	cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

$(ZEEP)/.fetched: $(SETUP) requirements-oldest-zeep.lock
	rm -rf $(ZEEP)
	$(PIP) install --no-deps --require-hashes --requirement requirements-oldest-zeep.lock --target $(ZEEP)
	touch $@

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Four at a time on two cores: tests that start other processes wait more than they work. The four longest lanes
# come first, and the others so that all four end at about the same time.
# All of them run whatever fails, so that one run shows all failures.
test: lint java brokers packages browser
	$(MAKE) --jobs=4 --keep-going --output-sync=target test-spark test-inside test-broker-calls test-broker-wires \
	  test-replay test-broker-systems test-peers test-protocol test-wires test-oldest-zeep

check: lint
	$(MAKE) --jobs=2 --keep-going --output-sync=target test-inside test-replay test-protocol test-wires test-oldest-zeep

# The protocol's own tests cover every branch of it. Measuring coverage makes them half as slow again.
test-protocol:
	$(BIN)/coverage run -m pytest -m 'not soak and not ($(OUTSIDE))' tests/protocol
	$(BIN)/coverage report --show-missing --skip-covered --fail-under=100

test-inside:
	$(BIN)/python -m pytest -m 'not soak and not ($(OUTSIDE))' --ignore=tests/protocol --ignore=tests/adapters --ignore=tests/replay

test-replay:
	$(BIN)/python -m pytest -m 'not soak and not ($(OUTSIDE))' tests/replay

test-wires:
	$(BIN)/python -m pytest -m 'not soak and not ($(OUTSIDE))' tests/adapters

# The tests with brokers, in three lanes of about equal length. The second one has all folders that the others do not
# name, but for two without such tests. Lanes name their folders because collecting a test takes time, too;
# tests/system/test_lanes.py sees that no test is left out.
test-broker-wires:
	$(BIN)/python -m pytest -m 'not soak and broker' tests/adapters

test-broker-calls:
	$(BIN)/python -m pytest -m 'not soak and broker' --ignore=tests/adapters --ignore=tests/system \
	  --ignore=tests/protocol --ignore=tests/replay

test-broker-systems:
	$(BIN)/python -m pytest -m 'not soak and broker' tests/system

test-spark:
	$(BIN)/python -m pytest -m 'not soak and not broker and spark' tests/replay tests/cli tests/security tests/system

test-peers:
	$(BIN)/python -m pytest -m 'not soak and not broker and not spark and ($(OUTSIDE))' tests/replay tests/system \
	  tests/adapters/amqp tests/protocol/test_xml_conformance.py

test-oldest-zeep: $(ZEEP)/.fetched
	SOAPJMS_TEST_ZEEP=$(OLDEST_ZEEP) PYTHONPATH=$(ZEEP) $(BIN)/python -m pytest -p no:cacheprovider -W "ignore:'cgi'" \
	  -m 'not soak and not ($(OUTSIDE))' tests/zeep tests/service/test_signatures.py

# The same as in `make test`, but under load; about three hours. SOAK='--small' runs each step with minimal load.
soak: setup java brokers stores rabbitmq
	$(BIN)/python tests/support/soak.py $(SOAK)

# Each workload and seed takes about five minutes. KILLS='--results FILE' resumes an interrupted run.
kills: setup java brokers
	PYTHONPATH=tests/support $(BIN)/python tests/support/kill_kit.py $(KILLS)

# Ten minutes.
sanitize: setup
	scripts/sanitize.sh $(BIN)/python build/sanitized -m 'not soak and not ($(OUTSIDE))' tests/adapters/amqp

fuzz: setup
	PYTHONPATH=.:tests:tests/support $(BIN)/python -m fuzz $(FUZZ)

# Makes a new environment for each extra. The gate has those that install quickly.
journey: setup java brokers
	$(BIN)/python tests/support/journey.py --write

docs: setup
	$(BIN)/python tools/docs/reference.py

pictures: setup browser
	$(BIN)/python tools/docs/pictures.py

demo: setup java
	$(BIN)/python examples/demo.py --out build/demo --engine spark

# With less work than by default: together some minutes. What is in benchmarks/results comes from whole runs.
bench: setup java brokers browser
	$(BIN)/python benchmarks/calls.py --pairs 2 --seconds 1 --results build/benchmarks --rows plain transactions store \
	  amqp embedded asyncio sizes mtom processes latency listener start
	$(BIN)/python benchmarks/safety.py --pairs 2 --seconds 1 --results build/benchmarks --rows levels unsafe
	$(BIN)/python benchmarks/plot.py build/benchmarks
	$(BIN)/python benchmarks/stages.py
	$(BIN)/python benchmarks/scheduling.py --pairs 2 --seconds 1 --results build/benchmarks
	$(BIN)/python benchmarks/engine.py --rounds 5
	$(BIN)/python benchmarks/attachments.py --mebibytes 4 --rounds 3
	$(BIN)/python benchmarks/part_memory.py
	$(BIN)/python benchmarks/uri.py --count 10000 --octets 131072
	$(BIN)/python benchmarks/capture.py --rounds 3
	$(BIN)/python benchmarks/observing.py --calls 500 --rounds 3
	$(BIN)/python benchmarks/pairing.py --calls 5000 10000
	$(BIN)/python benchmarks/smqp.py --seconds 2
	$(BIN)/python benchmarks/bridge_attack.py --seconds 2 --rounds 1
	$(BIN)/python benchmarks/replay.py --messages 20000 --traffic mixed skewed
	$(BIN)/python benchmarks/report.py --rounds 3

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
