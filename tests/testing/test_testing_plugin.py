"""The pytest plugin, as its users have it: tests of theirs run by a pytest of their own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from broker_recipes import CLASSIC_JARS
from places import ROOT
from real_brokers import RealBroker

import soapjms
from soapjms.testing import broker as running
from soapjms.testing.broker import BrokerNotAvailableError, wait_for

pytest_plugins = ["pytester"]

PLUGIN = "soapjms.testing.plugin"
START = '''
import pytest, soapjms
from soapjms.testing import assert_conforms

GREET = "{urn:greeter}greetMe"
ENVELOPE = """<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/">
<e:Body><greetMe xmlns="urn:greeter">World</greetMe></e:Body></e:Envelope>"""
SAID = '<greetMeResponse xmlns="urn:greeter">Hello</greetMeResponse>'
'''
SERVICE = """
service = soapjms.Service()

@service.operation(GREET)
def greet(request):
    return request.element
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run tests of a user's."""
    monkeypatch.delenv("SOAPJMS_TEST_BROKER", raising=False)
    return Run(pytester)


class Run:
    """Runs a file of tests with the plugin, in this process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def __call__(self, tests: str, *options: str) -> pytest.RunResult:
        self.pytester.makepyfile(test_theirs=START + tests)
        arguments = ["-p", PLUGIN, "-p", "no:cacheprovider", "-W", "error", *options]
        return self.pytester.runpytest_inprocess(*arguments)


def lines_of(result: pytest.RunResult) -> str:
    """Return what pytest wrote."""
    return result.stdout.str()


def test_a_stub(run: Run) -> None:
    """A stub answers as it is told; the capture holds both messages, and they conform."""
    result = run("""
def test_it(soapjms_stub, soapjms_client, soapjms_capture):
    soapjms_stub.expect(GREET).respond(SAID)
    response = soapjms_client(soapjms_stub.uri).call(ENVELOPE)
    assert response.element.text == "Hello"
    (exchange,) = soapjms_capture.exchanges()
    assert len(exchange.messages) == 2
    assert_conforms(soapjms_capture)
""")
    result.assert_outcomes(passed=1)
    assert "soapjms: broker: embedded (the default; see --soapjms-broker)" in lines_of(result)


def test_what_never_came(run: Run) -> None:
    """Fails the test itself, and names it; the report says which broker it was, and what passed."""
    result = run("""
def test_it(soapjms_stubs, soapjms_client):
    stub = soapjms_stubs(patience=0.05)
    stub.expect(GREET).respond(SAID).times(2)
    soapjms_client(stub.uri).call(ENVELOPE)
""")
    result.assert_outcomes(failed=1)
    told = lines_of(result)
    assert re.search(
        r"the stub at queue:soapjms-test\.test-it\.stub\.[0-9a-f]{32} did not receive what was expected", told
    )
    assert "  {urn:greeter}greetMe (expected twice, came once)" in told
    assert told.partition("short test summary")[0].count("did not receive what was expected") == 1
    assert "broker: the embedded broker" in told
    assert re.search(r"\ncaptured messages: 2, see .*soapjms-capture\.jsonl", told)
    assert re.search(r"  \d\d:\d\d:\d\d\.\d{6} request to queue:soapjms-test\.\S+ <e:Envelope .*World", told)
    assert "Traceback" not in told


def test_what_came_unexpected(run: Run) -> None:
    """Fails the test too, with the request; several stubs are all told of."""
    result = run("""
def test_it(soapjms_stubs, soapjms_client):
    first, second = soapjms_stubs(), soapjms_stubs("jms:queue:named", patience=0.05)
    second.expect("{urn:greeter}pingMe")
    soapjms_client(first.uri).call(ENVELOPE)
""")
    result.assert_outcomes(failed=1)
    told = lines_of(result)
    assert "  {urn:greeter}greetMe: nothing is expected" in told
    assert 'greetMe xmlns="urn:greeter">World</greetMe>' in told
    assert "the stub at queue:named did not receive what was expected" in told


def test_another_failure_is_not_hidden(run: Run) -> None:
    """A test that fails by itself says that, and the report what the stub missed."""
    result = run("""
def test_it(soapjms_stub):
    soapjms_stub.expect(GREET)
    assert 1 == 2
""")
    result.assert_outcomes(failed=1)
    told = lines_of(result)
    assert "assert 1 == 2" in told
    assert "  {urn:greeter}greetMe (expected once, came never)" in told
    assert "no message was captured" in told


RERUN = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for _ in range(2):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if all(each.passed for each in reports):
            break
    for each in reports:
        item.ihook.pytest_runtest_logreport(report=each)
    return True
"""
"""What pytest-rerunfailures does: it runs a failed test again, as the same item."""


def test_a_test_that_is_run_again(run: Run) -> None:
    """What its stubs missed in the first run does not count in the second."""
    run.pytester.makeconftest(RERUN)
    run(
        """
runs = []

def test_it(soapjms_stub, soapjms_client):
    soapjms_stub.expect(GREET).respond(SAID)
    runs.append(1)
    assert len(runs) == 2, "not this time"
    soapjms_client(soapjms_stub.uri).call(ENVELOPE)
"""
    ).assert_outcomes(passed=1)


def test_a_capture_that_was_taken_away(run: Run) -> None:
    """The report of a failure says so, and harms nothing."""
    result = run("""
def test_it(soapjms_capture):
    soapjms_capture.path.unlink()
    assert 0
""")
    result.assert_outcomes(failed=1)
    assert "the captured messages cannot be shown: " in lines_of(result)


def test_a_service(run: Run) -> None:
    """A service of the user's own is served for the test, and captured."""
    result = run(
        SERVICE
        + """
def test_it(soapjms_serve, soapjms_client, soapjms_capture):
    uri = soapjms_serve(service, workers=2)
    assert soapjms_client(uri).call(ENVELOPE).element.text == "World"
    assert_conforms(soapjms_capture, "rec-2012")
    assert {record.node for record in soapjms_capture.records()} == {"requesting", "responding"}
"""
    )
    result.assert_outcomes(passed=1)


def test_each_test_is_alone(run: Run) -> None:
    """Queues of the same name in two tests are two queues, and names are made that nobody else has."""
    result = run("""
uris = []

@pytest.mark.parametrize("number", [1, 2])
def test_leaves_a_message(soapjms_connection, soapjms_client, number):
    soapjms_client("jms:queue:orders").send(ENVELOPE)

def test_finds_none(soapjms_stubs, soapjms_client):
    stub = soapjms_stubs("jms:queue:orders")
    stub.expect(GREET)
    soapjms_client("jms:queue:orders").call(ENVELOPE)

@pytest.mark.parametrize("number", [1, 2])
def test_names(soapjms_uri, number):
    uris.extend([soapjms_uri(), soapjms_uri("orders"), soapjms_uri("news", "topic")])
    assert len(set(uris)) == 3 * number
    assert soapjms_uri("orders").startswith(f"jms:queue:soapjms-test.test-names-{number}.orders.")
    assert soapjms_uri("news", kind="topic").startswith("jms:topic:soapjms-test.")
    with pytest.raises(soapjms.UsageError):
        soapjms_uri(kind="map")
""")
    result.assert_outcomes(passed=5)


def test_by_url(run: Run) -> None:
    """What is under test may connect by URL; over the session there is another broker."""
    result = run("""
def test_it(soapjms_broker, soapjms_session_broker, soapjms_connection, soapjms_stub):
    soapjms_stub.expect(GREET).respond(SAID)
    with soapjms.connect(soapjms_broker.url) as connection, soapjms.Client(connection, soapjms_stub.uri) as client:
        assert client.call(ENVELOPE).element.text == "Hello"
    assert soapjms_broker.is_embedded
    assert soapjms_broker.url != soapjms_session_broker.url
""")
    result.assert_outcomes(passed=1)


def test_a_broker_by_option_variable_and_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option wins over the environment, and that over the configuration; the header says which it was."""
    tests = """
def test_it(soapjms_broker, soapjms_session_broker, soapjms_stub, soapjms_client):
    assert soapjms_broker is soapjms_session_broker
    soapjms_stub.expect(GREET)
    soapjms_client(soapjms_stub.uri).call(ENVELOPE)
    print("in use:", soapjms_broker.description)
"""
    run.pytester.makeini("[pytest]\nsoapjms_broker = embedded:a")
    result = run(tests, "-s")
    result.assert_outcomes(passed=1)
    assert "soapjms: broker: embedded:a (soapjms_broker)" in lines_of(result)
    assert "in use: embedded at embedded:a" in lines_of(result)
    monkeypatch.setenv("SOAPJMS_TEST_BROKER", "embedded:b")
    assert "in use: embedded at embedded:b" in lines_of(run(tests, "-s"))
    assert "in use: embedded at embedded:c" in lines_of(run(tests, "-s", "--soapjms-broker=embedded:c"))


def test_a_mistaken_choice(run: Run) -> None:
    """Is told before anything runs; what may be a password is not."""
    result = run("def test_it(): pass", "--soapjms-broker=rabbit://me:secret@host")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = result.stderr.str()
    assert "--soapjms-broker: the broker for tests must be embedded, container" in told
    assert "got a text that begins with 'rabbit'" in told
    assert "secret" not in told


def test_nobody_answers(run: Run) -> None:
    """A broker that is not there fails the tests that need it, without a password and without a traceback."""
    result = run("def test_it(soapjms_stub): pass", "--soapjms-broker=stomp://me:secret@127.0.0.1:9")
    result.assert_outcomes(errors=1)
    told = lines_of(result)
    assert "the tests cannot use the broker at stomp://***@127.0.0.1:9: " in told
    assert "secret" not in told


def test_no_docker(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Docker a container cannot be had, which is said with what to do; `auto` takes the embedded broker."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    result = run("def test_it(soapjms_real_broker): pass")
    result.assert_outcomes(errors=1)
    told = lines_of(result)
    assert re.search(r"need ActiveMQ in a container, but (no Docker engine answers|a library is missing) \(", told)
    assert "name the folder of an unpacked ActiveMQ, --soapjms-broker=process:FOLDER" in told
    assert "give the URL of a broker: --soapjms-broker=stomp://USER:PASSWORD@HOST:61613" in told
    tests = """
def test_it(soapjms_broker, soapjms_session_broker):
    assert soapjms_broker.is_embedded
    assert soapjms_broker is not soapjms_session_broker
"""
    result = run(tests, "--soapjms-broker=auto")
    result.assert_outcomes(passed=1)
    assert re.search(
        r"soapjms: broker: embedded \(--soapjms-broker: auto, as (no Docker|a library is)", lines_of(result)
    )


def test_a_container_or_why_not() -> None:
    """Where a Docker engine answers, a container is started and used; where none does, the reason is told."""
    problem = running.docker_problem()
    if problem is None:
        with running.running("container") as broker, broker.connect() as connection:
            assert connection.capabilities.broker.startswith("ActiveMQ/6.1.8")
    else:
        with pytest.raises(BrokerNotAvailableError, match=re.escape(problem)), running.running("container"):
            pass


@pytest.mark.broker
def test_a_real_broker(run: Run, activemq: RealBroker) -> None:
    """The same fixtures on ActiveMQ, with a broker that is waited for until it lets us in."""
    wait_for(activemq.stomp_url, 30, activemq.log)
    tests = """
def test_it(soapjms_stub, soapjms_client, soapjms_capture, soapjms_real_broker, soapjms_broker):
    soapjms_stub.expect(GREET).respond(SAID).times(2)
    client = soapjms_client(soapjms_stub.uri)
    assert [client.call(ENVELOPE).element.text for _ in range(2)] == ["Hello"] * 2
    assert_conforms(soapjms_capture)
    assert soapjms_broker is soapjms_real_broker
    assert soapjms_broker.description.startswith("ActiveMQ/6.1.8 at stomp://***@")
"""
    run(tests, f"--soapjms-broker={activemq.stomp_url}").assert_outcomes(passed=1)


@pytest.mark.broker
def test_a_child_process(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The ActiveMQ of a folder is started for the session on a free port, used, and ended: it leaves nothing behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tests = """
import os
def test_it(soapjms_stub, soapjms_client, soapjms_capture, soapjms_real_broker, soapjms_broker):
    soapjms_stub.expect(GREET).respond(SAID)
    assert soapjms_client(soapjms_stub.uri).call(ENVELOPE).element.text == "Hello"
    assert_conforms(soapjms_capture)
    assert soapjms_broker is soapjms_real_broker
    assert soapjms_broker.description.startswith("ActiveMQ of ")
    assert ", a child process at stomp://127.0.0.1:" in soapjms_broker.description
"""
    run(tests, f"--soapjms-broker=process:{CLASSIC_JARS.parent}").assert_outcomes(passed=1)
    assert list(tmp_path.glob("soapjms-activemq-*")) == []


@pytest.mark.parametrize(
    ("files", "home", "told"),
    [
        ([], None, "neither it nor its lib/ has an activemq-broker-*.jar; name the folder in which ActiveMQ"),
        (["lib/activemq-broker-6.1.8.jar"], "{folder}/none", "JAVA_HOME is {folder}/none, which has no bin/java"),
        (["activemq-broker-6.1.8.jar"], "{folder}", "ended before it was ready\nno such class"),
    ],
)
def test_a_child_process_that_cannot_be(
    files: list[str], home: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is said, and the end of what was logged."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no such class >&2\nexit 1\n")
    java.chmod(0o755)
    for each in files:
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).touch()
    monkeypatch.setenv("JAVA_HOME", (home or "{folder}").format(folder=tmp_path))
    with (
        pytest.raises(BrokerNotAvailableError, match=re.escape(told.format(folder=tmp_path))),
        running.running(f"process:{tmp_path}"),
    ):
        pass


def test_a_broker_that_never_is_ready() -> None:
    """Is given up in time, with the end of its log."""
    with pytest.raises(BrokerNotAvailableError) as caught:
        wait_for("stomp://me:secret@127.0.0.1:9", 0.0, lambda: "one\ntwo")
    assert re.match(
        r"the broker at stomp://\*\*\*@127\.0\.0\.1:9 was not ready after 0 s: .*\none\ntwo$", str(caught.value), re.S
    )


def theirs(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder as a program, as if soapjms were installed with its entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = folder / "site" / "soapjms_as_installed-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: soapjms-as-installed\nVersion: 1\n")
    named = project["entry-points"]["pytest11"].items()
    (installed / "entry_points.txt").write_text("[pytest11]\n" + "\n".join(f"{name} = {at}" for name, at in named))
    path = os.pathsep.join([str(ROOT), str(installed.parent)])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "SOAPJMS"))}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_entry_point(tmp_path: Path) -> None:
    """The plugin is there where soapjms is installed, without a word in the user's configuration."""
    (tmp_path / "test_theirs.py").write_text(
        START + "def test_it(soapjms_stub, soapjms_client):\n"
        "    soapjms_stub.expect(GREET)\n    soapjms_client(soapjms_stub.uri).call(ENVELOPE)\n"
    )
    done = theirs(tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "soapjms: broker: embedded" in done.stdout
    assert "1 passed" in done.stdout


def test_the_example() -> None:
    """examples/test_greeter.py passes."""
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            PLUGIN,
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
            "-c",
            os.devnull,
            str(ROOT / "examples" / "test_greeter.py"),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "4 passed" in result.stdout


def test_the_page_names_the_fixtures() -> None:
    """docs/testing.md has a line for each fixture, and its Python is Python."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    plugin = ast.parse((ROOT / "soapjms" / "testing" / "plugin.py").read_text(encoding="utf-8"))
    fixtures = [
        node.name for node in plugin.body if isinstance(node, ast.FunctionDef) and node.name.startswith("soapjms_")
    ]
    assert len(fixtures) > 5
    assert [name for name in fixtures if f"| `{name}` |" not in page] == []


def test_only_the_plugin_knows_pytest() -> None:
    """Nothing else of the product imports pytest, so that the rest of the kit serves other frameworks."""
    program = "import sys, soapjms.testing; print('pytest' in sys.modules, 'docker' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
    assert soapjms.__file__ is not None
    product = [path for name in ("brokers", "soapjms") for path in (ROOT / name).rglob("*.py")]
    importing = [
        path.name for path in product if re.search(r"^\s*(import|from) pytest\b", path.read_text("utf-8"), re.M)
    ]
    assert importing == ["plugin.py"]
