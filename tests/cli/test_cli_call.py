"""The command `soapjms call` as a user types it: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from calling_kit import (
    NS,
    SOAP_11,
    SOAP_12,
    answer_to,
    arrivals,
    element,
    envelope,
    fresh,
    greeter,
    responder,
    take_one,
)
from cli_kit import on_terminal, process, run, said
from lxml import etree
from places import ROOT
from ports import nobody
from real_brokers import RealBroker
from wsdl_kit import DATA

import soapjms
from brokers import Connection, Message, properties, queue
from soapjms.cli.commands import soapjms as cli
from soapjms.protocol import names

URI = "jms:queue:greeter"
HELLO = b"Hello World"


@pytest.fixture
def served(connection: Connection) -> Iterator[soapjms.Dispatcher]:
    """A greeter at that broker, which can also frame a picture."""
    service = greeter()

    @service.operation(f"{{{NS}}}frame")
    def frame(request: soapjms.Request) -> soapjms.Reply:
        picture = request.attachments[0]
        framed = soapjms.Attachment(b"[" + bytes(picture.content) + b"]", "image/png", "../framed")
        return soapjms.Reply(element("framed", picture.content_id or ""), [framed])

    with soapjms.Dispatcher(connection, URI, service) as dispatcher:
        yield dispatcher


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a request."""
    path = tmp_path / "hello.xml"
    path.write_bytes(envelope())
    return path


# An answer


@pytest.mark.usefixtures("served")
def test_an_answer_is_printed_as_it_came(url: str, file: Path) -> None:
    """The envelope and nothing else on standard output; status 0."""
    done = run("call", "--connection", url, "--uri", URI, file)
    assert (done.exit_code, done.stderr) == (0, "")
    assert etree.fromstring(done.stdout_bytes).findtext(f".//{{{NS}}}greetMeResponse") == "Hello World"


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_the_envelope_may_come_on_standard_input(url: str, arguments: list[str]) -> None:
    """With a dash, and without a file."""
    done = run("call", "--connection", url, "--uri", URI, *arguments, stdin=envelope(version=SOAP_12))
    assert done.exit_code == 0
    assert HELLO in done.stdout_bytes


@pytest.mark.usefixtures("served")
def test_json(url: str, file: Path) -> None:
    """Headers and properties of request and response, body, fault, findings."""
    call = said("call", "--connection", url, "--uri", f"{URI}?priority=7", "--action", "urn:a", file)
    assert call["request"]["properties"]["SOAPJMS_soapAction"] == "urn:a"
    assert call["request"]["jms"]["priority"] == 7
    assert call["response"]["jms"]["correlation_id"] == call["request"]["jms"]["correlation_id"]
    assert "Hello World" in call["body"]
    assert (call["fault"], call["findings"], call["notes"], call["attachments"]) == (None, [], [], [])


def test_one_way(url: str, connection: Connection, file: Path) -> None:
    """A message without JMSReplyTo; it waits for no answer and prints nothing."""
    done = run("call", "--connection", url, "--uri", URI, "--one-way", "--text", file)
    assert (done.exit_code, done.output) == (0, "")
    message = take_one(connection, queue("greeter"))
    assert (message.reply_to, message.message_type) == (None, "text")
    assert said("call", "--connection", url, "--uri", URI, "--one-way", file) == {"sent": True}


@pytest.mark.usefixtures("served")
def test_attachments_go_along_and_come_back(url: str, tmp_path: Path) -> None:
    """Files by their names; what comes back is listed, and saved under names that are ours."""
    (tmp_path / "photo.png").write_bytes(b"PNG")
    asked = tmp_path / "frame.xml"
    asked.write_bytes(envelope(operation="frame"))
    arguments = ["call", "--connection", url, "--uri", URI, "--attachment", tmp_path / "photo.png", asked]
    done = run(*arguments)
    assert done.exit_code == 0
    assert "photo.png</framed>" in done.stdout
    assert done.stderr == "attachment ../framed, image/png, 5 octets; --save DIR writes it to a file\n"
    out = tmp_path / "out"
    (attachment,) = said(*arguments, "--save", out)["attachments"]
    assert attachment["file"] == str(out / "attachment-1.png")
    assert (out / "attachment-1.png").read_bytes() == b"[PNG]"
    assert [each.name for each in out.iterdir()] == ["attachment-1.png"]


def with_parts(request: Message, *parts: tuple[str, bytes]) -> Message:
    """Make an answer with attachments, given as header fields and content as they are on the wire."""
    heads = [
        f"Content-Type: {SOAP_11.media_type}; charset=utf-8\r\nContent-ID: <envelope>",
        *(each[0] for each in parts),
    ]
    contents = [envelope("Hello", operation="greetMeResponse"), *(each[1] for each in parts)]
    pieces = [
        f"--b\r\n{head}\r\n\r\n".encode() + content + b"\r\n" for head, content in zip(heads, contents, strict=True)
    ]
    kind = f'multipart/related; boundary=b; type="{SOAP_11.media_type}"; start="<envelope>"'
    answer = answer_to(request)
    return replace(
        answer,
        body=b"".join(pieces) + b"--b--",
        properties=answer.properties.merged(properties({names.CONTENT_TYPE: kind})),
    )


BROKEN_PART = "Content-Type: application/pdf\r\nContent-ID: <p>\r\nContent-Transfer-Encoding: base64", b"abc"
WHOLE_PART = "Content-Type: application/pdf\r\nContent-ID: <q>", b"PDF"


def test_an_attachment_that_cannot_be_decoded(url: str, connection: Connection, file: Path, tmp_path: Path) -> None:
    """The answer and the other attachments are shown and saved; status 1, as 2 would say that nothing was sent."""
    arguments = ["call", "--connection", url, "--uri", URI, file]
    with responder(connection, queue("greeter"), lambda request: [with_parts(request, BROKEN_PART, WHOLE_PART)]):
        unsaved = run(*arguments)
        done = run(*arguments, "--save", tmp_path / "out")
        call = said(*arguments, "--save", tmp_path / "json", status=1)
    assert (unsaved.exit_code, "Hello" in unsaved.stdout) == (0, True)
    assert "attachment p, application/pdf, octets that cannot be decoded; --save" in unsaved.stderr
    assert (done.exit_code, "Hello" in done.stdout) == (1, True)
    first, second = done.stderr.splitlines()
    assert first.endswith("not saved: the part 'p': the content is no base64: Incorrect padding")
    assert second == f"attachment q, application/pdf, 3 octets in {tmp_path}/out/attachment-1.pdf"
    assert "Hello" in call["body"]
    assert [each.get("problem", "")[:8] for each in call["attachments"]] == ["the part", ""]
    assert Path(call["attachments"][1]["file"]).read_bytes() == b"PDF"


def test_a_folder_that_cannot_be_made(url: str, connection: Connection, file: Path, tmp_path: Path) -> None:
    """When the answer comes, it is too late for status 2."""
    out = tmp_path / "out"

    def answers(request: Message) -> list[Message]:
        out.write_text("no folder")
        return [with_parts(request, WHOLE_PART)]

    with responder(connection, queue("greeter"), answers):
        done = run("call", "--connection", url, "--uri", URI, "--save", out, file)
    assert (done.exit_code, "Hello" in done.stdout) == (1, True)
    assert done.stderr == f"attachment q, application/pdf, 3 octets, not saved: '{out}': File exists\n"


def test_files_that_exist_are_left_alone(url: str, connection: Connection, file: Path, tmp_path: Path) -> None:
    """Neither the attachment of an earlier call nor what a link names is overwritten."""
    out, precious = tmp_path / "out", tmp_path / "precious"
    out.mkdir()
    precious.write_bytes(b"mine")
    (out / "attachment-1.pdf").write_bytes(b"earlier")
    (out / "attachment-2.pdf").symlink_to(precious)
    (out / "attachment-3.pdf").symlink_to(tmp_path / "nothing")
    with responder(connection, queue("greeter"), lambda request: [with_parts(request, WHOLE_PART, WHOLE_PART)]):
        call = said("call", "--connection", url, "--uri", URI, "--save", out, file)
    assert [each["file"] for each in call["attachments"]] == [f"{out}/attachment-{number}.pdf" for number in (4, 5)]
    assert [path.read_bytes() for path in (precious, out / "attachment-1.pdf", out / "attachment-5.pdf")] == [
        b"mine",
        b"earlier",
        b"PDF",
    ]
    assert not (tmp_path / "nothing").exists()


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_answer_that_cannot_be_printed(
    url: str, file: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk: the status is 1, as 2 would say that nothing was sent."""
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(full, write_through=True))
        with pytest.raises(SystemExit) as ended:
            cli.main(["call", "--connection", url, "--uri", URI, *options, str(file)])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "Error: an answer came, and cannot be printed: No space left on device\n"


def test_a_port_of_a_wsdl(url: str, connection: Connection, file: Path) -> None:
    """The address, the edition and the operation's action are the WSDL's."""
    arguments = ["--wsdl", DATA / "echo-soap12.wsdl", "--operation", "pingMe", "--one-way"]
    done = run("call", "--connection", url, *arguments, file)
    assert (done.exit_code, done.output) == (0, "")
    message = take_one(connection, queue("CXF.ECHO.12"))
    assert message.properties.value(names.SOAP_ACTION) == "urn:soapjms:echo/pingMe"


def test_jndi_names_of_java_clients_allow_no_broker(file: Path, tmp_path: Path) -> None:
    """A jndi.properties names a broker, and has no place to allow one: the error says what does."""
    path = tmp_path / "jndi.properties"
    path.write_text(
        "java.naming.factory.initial = org.apache.activemq.jndi.ActiveMQInitialContextFactory\n"
        "java.naming.provider.url = tcp://localhost:61616\nqueue.jms/Greeter = greeter\n"
    )
    done = run("call", "--names", path, "--uri", "jms:jndi:jms%2FGreeter", file)
    assert done.exit_code == 2
    assert (
        "leads to tcp://localhost:61616, which is not allowed; allowed are: none. Give --connection URL" in done.stderr
    )


def test_jndi_names_lead_to_the_broker(url: str, connection: Connection, file: Path, tmp_path: Path) -> None:
    """Without --connection, the connection factory of --names is used."""
    path = tmp_path / "names.toml"
    path.write_text(f'[queues]\n"jms/Greeter" = "greeter"\n[connection_factories]\nConnectionFactory = "{url}"\n')
    with soapjms.Dispatcher(connection, URI, greeter()):
        done = run("call", "--names", path, "--uri", "jms:jndi:jms%2FGreeter", file)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Hello World" in done.stdout


# Status 1


@pytest.mark.usefixtures("served")
def test_a_fault_is_named(url: str, tmp_path: Path) -> None:
    """Its envelope is printed, what it says on standard error, and the status is 1."""
    done = run("call", "--connection", url, "--uri", URI, stdin=envelope(operation="fail"))
    assert done.exit_code == 1
    assert "<faultstring>no such person</faultstring>" in done.stdout
    first, detail = done.stderr.splitlines()
    assert first == "fault {http://schemas.xmlsoap.org/soap/envelope/}Client: no such person"
    assert detail.startswith("detail <who ")
    fault = said("call", "--connection", url, "--uri", URI, stdin=envelope("Ann", operation="fail"), status=1)["fault"]
    assert (fault["subcode"], fault["blame"], fault["reason"]) == (None, "Sender", "no such person")
    assert ">Ann</who>" in fault["detail"]


def test_a_body_that_the_broker_made(url: str, connection: Connection) -> None:
    """What a Java service says of one has the likely cause beside it."""
    service = soapjms.Service()

    @service.operation("{urn:greeter}greetMe")
    def greet(request: soapjms.Request) -> None:
        raise soapjms.SoapFaultError("Couldn't parse stream.")

    with soapjms.Dispatcher(connection, URI, service):
        done = run("call", "--connection", url, "--uri", URI, stdin=envelope())
    assert done.exit_code == 1
    assert "hint if the request went to ActiveMQ over AMQP" in done.stderr
    assert "transport.transformer=jms" in done.stderr


@pytest.mark.usefixtures("served")
def test_text_between_colons_stays(url: str) -> None:
    """A reason and a detail are printed as they came: `:lock:` is not the name of a picture."""
    done = run("call", "--connection", url, "--uri", URI, stdin=envelope("a:key:b", operation="fail"))
    assert ">a:key:b</who>" in done.stderr


def test_the_subcode_of_a_fault_of_the_binding(url: str, connection: Connection, file: Path) -> None:
    """It is the word that the specification has."""
    body = (
        f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body><e:Fault><faultcode xmlns:j="{names.REC_NAMESPACE}">'
        "j:missingContentType</faultcode><faultstring>none</faultstring></e:Fault></e:Body></e:Envelope>"
    )
    with responder(connection, queue("greeter"), lambda request: [answer_to(request, body=body.encode())]):
        done = run("call", "--connection", url, "--uri", URI, file)
        call = said("call", "--connection", url, "--uri", URI, file, status=1)
    assert done.stderr.startswith("fault missingContentType: none\n")
    assert (call["fault"]["subcode"], call["fault"]["blame"]) == ("missingContentType", "Sender")


def test_findings_are_named(url: str, connection: Connection, file: Path) -> None:
    """An answer that breaks a rule is printed; which rule, by its id; and the status is 1."""

    def without_content_type(request: Message) -> list[Message]:
        answer = answer_to(request, "Hello")
        kept = [each for each in answer.properties if each.name != names.CONTENT_TYPE]
        return [replace(answer, properties=type(answer.properties)(kept))]

    with responder(connection, queue("greeter"), without_content_type):
        done = run("call", "--connection", url, "--uri", URI, file)
        call = said("call", "--connection", url, "--uri", URI, file, status=1)
    assert done.exit_code == 1
    assert "Hello" in done.stdout
    assert re.search(r"^Protocol-2\d+ MUST: ", done.stderr, re.MULTILINE)
    assert {each["outcome"] for each in call["findings"]} == {"failed"}


def test_a_should_that_is_broken_is_named(url: str, connection: Connection, file: Path) -> None:
    """What a service over STOMP cannot do otherwise, as all its properties are strings: the status is 0."""

    def with_text(request: Message) -> list[Message]:
        answer = answer_to(request, "Hello")
        return [replace(answer, properties=answer.properties.merged(properties({names.IS_FAULT: "false"})))]

    with responder(connection, queue("greeter"), with_text):
        done = run("call", "--connection", url, "--uri", URI, file)
        call = said("call", "--connection", url, "--uri", URI, file)
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    assert "Local-2.2.3-isFaultType SHOULD: SOAPJMS_isFault is a JMS string, not a boolean" in done.stderr
    assert [each["outcome"] for each in call["findings"]] == ["warning"]


# Status 2


@pytest.fixture
def deaf() -> Iterator[str]:
    """Make an address where nobody listens."""
    with nobody() as port:
        yield f"stomp://127.0.0.1:{port}"


def test_bad_input_is_one_clear_message(url: str, file: Path, tmp_path: Path) -> None:
    """What cannot be is said in one line, without a traceback, and the status is 2."""
    at = ["--connection", url]
    no_envelope = tmp_path / "no.xml"
    no_envelope.write_text("<no/>")
    for arguments, text in [
        (["--uri", URI, file], "give --connection, such as stomp://USER:PASSWORD@HOST:61613"),
        ([*at, file], "give either --uri or --wsdl"),
        ([*at, "--uri", URI, "--wsdl", DATA / "echo-soap11.wsdl", file], "give either --uri or --wsdl"),
        ([*at, "--uri", URI, "--port", "p", file], "--port is for a WSDL"),
        ([*at, "--uri", URI, "--operation", "o", file], "for a URI give --action"),
        ([*at, "--uri", "jms:nowhere", file], "jms:nowhere"),
        ([*at, "--uri", URI, tmp_path / "none.xml"], "none.xml"),
        ([*at, "--uri", URI, no_envelope], "no SOAP envelope"),
        ([*at, "--uri", URI, "--set", "priority=99", file], "priority"),
        ([*at, "--uri", URI, "--timeout", "0", file], "--timeout"),
        ([*at, "--wsdl", tmp_path / "none.wsdl", file], "none.wsdl"),
        ([*at, "--wsdl", DATA / "echo-soap12.wsdl", "--operation", "none", file], "there are: "),
        ([*at, "--uri", URI, "--names", tmp_path / "none.properties", file], "none.properties"),
        (["--connection", "carrier-pigeon://x", "--uri", URI, file], "no broker adapter for the URL scheme"),
        (["--connection", "stomp://me:secret@localhost/x", "--uri", URI, file], "write stomp://"),
    ]:
        with soapjms.connect(url):  # so that a service might be there
            done = run("call", *arguments)
        assert (done.exit_code, done.stdout) == (2, ""), arguments
        assert text in done.stderr, arguments
        assert "Traceback" not in done.stderr
        assert "secret" not in done.stderr


def test_nobody_answers_there(deaf: str, file: Path) -> None:
    """Neither at the port nor, within its time, at the queue."""
    done = run("call", "--connection", deaf, "--uri", URI, file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: no connection to stomp://127.0.0.1:")
    with soapjms.connect("embedded:silent"):
        done = run("call", "--connection", "embedded:silent", "--uri", URI, "--timeout", "0.05", file)
    assert (done.exit_code, done.stdout) == (3, ""), "it waits there still, for whoever serves"
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("Error: ")


@pytest.mark.parametrize(
    ("options", "lifetime"), [([], 50), (["--set", "timeToLive=300000"], 300_000), (["--set", "timeToLive=0"], None)]
)
def test_when_the_request_expires(file: Path, options: list[str], lifetime: int | None) -> None:
    """When the command stops waiting, or as --set timeToLive says; the page about commands says so."""
    with soapjms.connect("embedded:late") as connection, arrivals(connection, queue("greeter")) as found:
        before = time.time_ns() // 1_000_000
        done = run("call", "--connection", "embedded:late", "--uri", URI, "--timeout", "0.05", *options, file)
        expiration = found.next().expiration
    assert done.exit_code == 3
    assert (
        (expiration or None) is None if lifetime is None else lifetime <= (expiration or 0) - before < lifetime + 5000
    )
    assert "`--set timeToLive=300000`" in (ROOT / "docs/cli.md").read_text(encoding="utf-8")


def test_debug_shows_where(deaf: str, file: Path) -> None:
    """Before or after the command, where else one line says what was wrong; the status is the same."""
    broken = ["call", "--connection", deaf, "--uri", URI, file]
    for arguments in ([*broken, "--debug"], ["--debug", *broken]):
        done = run(*arguments)
        assert done.exit_code == 2
        assert "ConnectionFailedError" in done.stderr.splitlines()[-1]
        assert "Traceback" in done.stderr
    done = run(*broken)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_which_port_by_itself() -> None:
    """An operation goes to the first, an envelope to the only one; other commands know no operations."""
    said = " ".join(run("call", "--help").stdout.split())
    assert "[default: the only SOAP/JMS port; with WSDL OPERATION the first]" in said
    assert "[default: the only SOAP/JMS port]" in " ".join(run("doctor", "--help").stdout.split())


# As a process


def test_as_a_process_without_a_traceback(deaf: str, tmp_path: Path, file: Path) -> None:
    """What a shell sees: status 2, one line; with --debug a traceback."""
    broken = ["call", "--connection", deaf, "--uri", URI, file]
    done = process(*broken, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    shown = process(*broken, "--debug", cwd=tmp_path)
    assert (shown.returncode, b"Traceback" in shown.stderr) == (2, True)


@pytest.mark.broker
class TestOnActiveMQ:
    """Over STOMP, as a user has it."""

    def test_an_answer(self, activemq: RealBroker, tmp_path: Path, file: Path) -> None:
        """The URL comes from the environment; on a pipe the answer is raw, on a terminal it is laid out."""
        name = fresh()
        with (
            soapjms.connect(activemq.stomp_url) as connection,
            soapjms.Dispatcher(connection, f"jms:queue:{name}", greeter()),
        ):
            arguments = ["call", "--uri", f"jms:queue:{name}", "hello.xml"]
            done = process(*arguments, cwd=tmp_path, SOAPJMS_CONNECTION=activemq.stomp_url)
            assert (done.returncode, done.stderr) == (0, b"")
            assert HELLO in done.stdout
            status, shown = on_terminal(*arguments, "--connection", activemq.stomp_url, cwd=tmp_path)
        assert status == 0
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert re.search(r"^ +<greetMeResponse.*>Hello World</greetMeResponse>", plain, re.MULTILINE)

    def test_a_wrong_password(self, activemq: RealBroker, tmp_path: Path, file: Path) -> None:
        """It is said, and never repeated."""
        url = activemq.stomp_url.replace("admin:admin@", "admin:hunter2@")
        done = process("call", "--connection", url, "--uri", URI, file, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"Error: stomp://")
        assert b"hunter2" not in done.stderr
        assert json.dumps(done.stderr.decode()).count("\\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--uri", URI],
        ["--uri", URI, "--one-way"],
        ["--uri", URI, DATA / "echo-soap11.wsdl", "greetMe", "requestType=Bob"],
    ],
)
@pytest.mark.parametrize("url", ["embedded:", "EMBEDDED:nobody"])
def test_nobody_is_in_an_embedded_broker(words: list[object], url: str) -> None:
    """It is refused at once, with what to do; in the process of a service it is fine, as the other tests show."""
    done = run("call", "--connection", url, *words, stdin=envelope())
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("Error: ")]
    assert line.startswith(
        f"Error: --connection '{url}' is a broker inside of this process, where no service is. Run a broker"
    )
    assert "soapjms broker --amqp localhost:5672" in line
    assert "soapjms.Client" in line
