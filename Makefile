# The gate and its parts. `make test` is all of it, from a fresh clone with nothing but Python 3.11+ and root or a JDK.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# The markers of tests that need more than Python.
OUTSIDE := broker or spark or peer or browser

SETUP := $(VENV)/.made-from-pyproject

# The environment has the newest zeep. This one, the oldest that pyproject.toml lets in, stands before it on the path of
# one run; that it imports a module which Python has deprecated since is no failure of ours.
OLDEST_ZEEP = $(shell $(BIN)/python -c 'import sys; print("4.3.0" if sys.version_info >= (3, 13) else "4.2.0")')
ZEEP := build/zeep-oldest
BROKERS := $(patsubst %,build/%/.fetched,activemq artemis qpid jolokia joram cxf)
HDFS := build/hdfs/.fetched
PACKAGES := $(patsubst %,build/%/.fetched,xml-conformance rhea report-page)

.PHONY: help setup lock java node browser brokers hdfs packages soak kills fuzz sanitize test test-protocol test-wires test-inside test-brokers test-peers test-oldest-zeep check lint docs demo bench clean
.DELETE_ON_ERROR:

help:
	@echo 'make test     the gate: format, lint, types, every test, with real brokers and Spark'
	@echo 'make check    the part of the gate that needs no broker, no Java and no Node.js'
	@echo 'make fuzz     attacks by chance on all that reads what others send: some twenty minutes; FUZZ="--seed 1" repeats,'
	@echo '              FUZZ="--only amqp smqp --cases 1000" is a part of it'
	@echo 'make sanitize the tests of AMQP with proton compiled so that misused memory ends it; needs gcc'
	@echo 'make soak     brokers, services and the network fail under load, many callers, many calls: about three hours'
	@echo "              SOAK='--only kills' runs these steps; SOAK=--small each with next to nothing"
	@echo "make kills    the first of its steps; KILLS='--only amqp/artemis --seed 3 --calls 500' is a part of it"
	@echo 'make demo     a call from end to end; what it makes is in build/demo'
	@echo 'make bench    calls a second over a real ActiveMQ, safe and unsafe; what URIs, the protocol, attachments and pairing cost'
	@echo 'make docs     the API reference, from the docstrings: docs/api'
	@echo 'make setup    the virtual environment in $(VENV), of what requirements.lock pins'
	@echo 'make lock     pin the newest of what pyproject.toml lets in; needs a network'
	@echo 'make java     check for a JDK and Maven; as root install them'
	@echo 'make brokers  fetch ActiveMQ Classic, Artemis, Qpid, the agent that tells what they count, the JMS tests of Joram, and CXF'
	@echo 'make hdfs     fetch the servers of HDFS, which make soak replays logs from'
	@echo 'make packages fetch the W3C XML conformance data, rhea, a client of AMQP that is not ours, and axe-core'
	@echo 'make browser  check for Chromium, which opens the report of a replay; as root install it'
	@echo 'make clean    remove all that was made'

setup: $(SETUP)

$(SETUP): pyproject.toml requirements.lock
	scripts/need-python.sh $(PYTHON)
	scripts/need-c.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --requirement requirements.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

# What is installed, each file by its hash, for every Python that pyproject.toml lets in.
lock:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes --no-header \
	  --output-file requirements.lock pyproject.toml

java:
	scripts/need-java.sh

brokers: $(BROKERS)

hdfs: $(HDFS)

# `java` stands behind the bar: it is checked first, but having checked it does not make the jars old.
$(BROKERS) $(HDFS): build/%/.fetched: tests/peers/%/pom.xml | java
	rm -rf $(@D)
	mvn --batch-mode --quiet --file $< generate-resources
	touch $@

node:
	scripts/need-node.sh

browser:
	scripts/need-browser.sh

packages: $(PACKAGES)

$(PACKAGES): build/%/.fetched: tests/peers/%/package.json tests/peers/%/package-lock.json | node
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

# The tests that start something of their own wait more than they work, and so do not slow the others beside them.
# All of them run whatever fails, so that one run tells everything.
test: lint java brokers packages browser
	$(MAKE) --jobs=2 --keep-going --output-sync=target test-brokers test-protocol test-inside test-peers test-wires test-oldest-zeep

check: lint
	$(MAKE) --jobs=2 --keep-going --output-sync=target test-protocol test-inside test-wires test-oldest-zeep

# Every branch of the protocol is covered by its own tests. Coverage makes them half as slow again.
test-protocol:
	$(BIN)/coverage run -m pytest -m 'not soak and not ($(OUTSIDE))' tests/protocol
	$(BIN)/coverage report --show-missing --skip-covered --fail-under=100

test-inside:
	$(BIN)/python -m pytest -m 'not soak and not ($(OUTSIDE))' --ignore=tests/protocol --ignore=tests/adapters

test-wires:
	$(BIN)/python -m pytest -m 'not soak and not ($(OUTSIDE))' tests/adapters

test-brokers:
	$(BIN)/python -m pytest -m 'not soak and broker'

test-peers:
	$(BIN)/python -m pytest -m 'not soak and not broker and ($(OUTSIDE))'

test-oldest-zeep: $(ZEEP)/.fetched
	SOAPJMS_TEST_ZEEP=$(OLDEST_ZEEP) PYTHONPATH=$(ZEEP) $(BIN)/python -m pytest -p no:cacheprovider -W "ignore:'cgi'" \
	  -m 'not soak and not ($(OUTSIDE))' tests/zeep tests/service/test_signatures.py

# What `make test` does with less; about three hours. SOAK='--small' runs each step with next to nothing.
soak: setup java brokers hdfs
	$(BIN)/python tests/support/soak.py $(SOAK)

# Each workload and seed takes some five minutes. With KILLS='--results FILE' what was interrupted goes on.
kills: setup java brokers
	PYTHONPATH=tests/support $(BIN)/python tests/support/kill_kit.py $(KILLS)

# Ten minutes.
sanitize: setup
	scripts/sanitize.sh $(BIN)/python build/sanitized -m 'not soak and not ($(OUTSIDE))' tests/adapters/amqp

fuzz: setup
	PYTHONPATH=.:tests:tests/support $(BIN)/python -m fuzz $(FUZZ)

docs: setup
	$(BIN)/python tools/docs/reference.py

demo: setup java
	$(BIN)/python examples/demo.py --out build/demo

# All but the first with less than they take by default: together a minute or two.
bench: setup java brokers browser
	$(BIN)/python benchmarks/calls.py
	$(BIN)/python benchmarks/safety.py --pairs 3 --seconds 2
	$(BIN)/python benchmarks/stages.py
	$(BIN)/python benchmarks/engine.py --rounds 5
	$(BIN)/python benchmarks/attachments.py --mebibytes 4 --rounds 3
	$(BIN)/python benchmarks/uri.py --count 10000 --octets 131072
	$(BIN)/python benchmarks/capture.py --rounds 3
	$(BIN)/python benchmarks/observing.py --calls 500 --rounds 3
	$(BIN)/python benchmarks/pairing.py --calls 5000 10000
	$(BIN)/python benchmarks/smqp.py --seconds 2
	$(BIN)/python benchmarks/bridge_attack.py --seconds 2 --rounds 1
	$(BIN)/python benchmarks/replay.py --messages 20000 --skewed 20000
	$(BIN)/python benchmarks/report.py --rounds 3

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
