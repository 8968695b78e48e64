"""A service: which function answers which request, what it gets, and what becomes of what it returns or raises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

import pytest
from calling_kit import NS, SOAP_11, SOAP_12, element, envelope, request_message
from lxml import etree
from service_kit import GREET, accepted

from brokers import MessageType, queue
from soapjms import Reply, Request, Service, SoapFaultError, SoapVersion, UsageError
from soapjms.protocol import names, xml
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import Envelope, Fault, as_envelope, build_fault, read_fault, wrap
from soapjms.protocol.responding import RequestAccepted, RespondingNode


def answering(answer: Any) -> Service:
    """Make a service whose operation returns `answer`, or raises it."""
    service = Service()

    @service.operation(GREET)
    def greet(request: Request) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return service


def answer_of(answer: Any, version: SoapVersion = SOAP_11) -> Envelope:
    """Return the envelope that a service answers with."""
    return as_envelope(answering(answer).answer(accepted(version)).envelope)


def fault_of(answer: Any, version: SoapVersion = SOAP_11) -> Fault:
    """Return the fault that a service answers with."""
    fault = read_fault(answer_of(answer, version))
    assert fault is not None
    return fault


class TestRegistering:
    """`Service.operation`."""

    def test_by_name(self) -> None:
        """Functions are found by the name of the element; the decorator gives the function back."""
        service = Service()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            return None

        @service.operation("{}plain")
        def plain(request: Request) -> None:
            return None

        assert service.operations == {GREET: greet, "plain": plain}

    def test_operations_are_a_copy(self) -> None:
        """What `operations` returns is the caller's to change."""
        service = answering(None)
        assert isinstance(service.operations, dict)
        service.operations.clear()
        assert list(service.operations) == [GREET]

    @pytest.mark.parametrize("name", ["", "a b", "x:y", "{urn:greeter}", "{urn:greeter", "7"])
    def test_no_name(self, name: str) -> None:
        """What is no name of an element is refused, with how to write one."""
        with pytest.raises(UsageError, match=r"name of an element must be written \{namespace\}local"):
            Service().operation(name)

    def test_without_name(self) -> None:
        """A decorator without its name is refused with the way to write it."""
        function: Any = test_no_operation
        with pytest.raises(UsageError, match=r"must be given the name of an element, .*: @service\.operation\(NAME\)"):
            Service().operation(function)

    def test_twice(self) -> None:
        """A name is registered once."""
        with pytest.raises(UsageError, match="is registered already, as <function answering"):
            answering(None).operation(GREET)(lambda request: None)

    def test_empty_namespace(self) -> None:
        """No namespace may be written with empty braces."""
        service = Service()
        service.operation("{}plain")(lambda request: None)
        assert list(service.operations) == ["plain"]

    def test_no_function(self) -> None:
        """Only functions are taken."""
        with pytest.raises(UsageError, match="must decorate a function, got 'greet'"):
            Service().operation(GREET)("greet")  # type: ignore[type-var]

    @pytest.mark.parametrize("wrong", [lambda: None, lambda request, other: None, lambda *, request: None])
    def test_wrong_signature(self, wrong: Any) -> None:
        """A function is called with the request alone; any other would fail at every request."""
        with pytest.raises(UsageError, match=r"must decorate a function \(request\), got "):
            Service().operation(GREET)(wrong)

    def test_odd_signatures(self) -> None:
        """Wrappers, optional parameters, and functions whose signature Python does not know."""

        @wraps(lambda: None)
        def wrapped(*values: Any) -> Any:
            return values[0]

        for function in (wrapped, lambda request, other=None: None, partial(int, base=2), dict.fromkeys, iter):
            Service().operation(GREET)(function)

    @pytest.mark.parametrize("given", ["{urn:greeter}a", 7, [7]])
    def test_no_names(self, given: Any) -> None:
        """Header blocks and roles are lists of names."""
        with pytest.raises(UsageError, match=r"understands must be a list of strings, got "):
            Service(understands=given)
        with pytest.raises(UsageError, match=r"roles must be a list of strings, got "):
            Service(roles=given)

    @pytest.mark.parametrize("argument", ["action", "reply_action"])
    def test_no_action(self, argument: str) -> None:
        """An action is a string."""
        with pytest.raises(UsageError, match=f"{argument} must be a string, or None, got 5"):
            Service().operation(GREET, **{argument: 5})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"attachments": ["x"]}, r"attachments must be a list of soapjms\.Attachment, got \['x'\]"),
            ({"headers": "x"}, "headers must be a list of elements, got 'x'"),
            ({"headers": b"x"}, "headers must be a list of elements, got b'x'"),
            ({"headers": element("a")}, "headers must be a list of elements, got <Element"),
            ({"properties": None}, "properties must be a mapping of names to values, got None"),
        ],
    )
    def test_no_reply(self, given: Any, says: str) -> None:
        """A reply is refused where it is made."""
        with pytest.raises(UsageError, match=says):
            Reply(None, **given)

    def test_a_reply_with_nothing(self) -> None:
        """None is no attachment and no header block."""
        given: dict[str, Any] = {"attachments": None, "headers": None}
        assert Reply(None, **given) == Reply(None)


class TestRequest:
    """What a function gets."""

    def test_of_a_request(self) -> None:
        """The element with everything that came with it."""
        seen: list[Request] = []
        service = Service()
        service.operation(GREET)(seen.append)
        body = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body><greetMe xmlns="{NS}"><name>Ann</name></greetMe>'
        event = accepted(
            body=f"{body}</e:Body></e:Envelope>",
            properties={names.SOAP_ACTION: '"urn:greet"', names.TARGET_SERVICE: "a", "extra": 7},
            expiration=5,
        )
        service.perform(Request.of(event, delivery_count=2, redelivered=True))
        (request,) = seen
        assert request.name == GREET
        assert request.findtext(f"{{{NS}}}name") == "Ann"
        assert request.findtext("nobody", "default") == "default"
        assert request.find("nobody") is None
        assert request.element is request.envelope.content
        assert request.message is event.message
        assert request.message.message_type is MessageType.TEXT
        assert request.properties.value("extra") == 7
        assert (request.soap_action, request.target_service) == ("urn:greet", "a")
        assert (request.one_way, request.delivery_count, request.deadline) == (False, 2, 5)
        assert request.redelivered

    def test_of_a_one_way_message(self) -> None:
        """Nothing is made up that did not come."""
        seen: list[Request] = []
        service = Service()
        service.operation(GREET)(seen.append)
        service.answer(accepted(reply_to=None, expiration=0))
        (request,) = seen
        assert request.one_way
        assert (request.delivery_count, request.deadline, request.soap_action, request.target_service) == (None,) * 4


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
class TestAnswers:
    """What becomes of what a function returns."""

    def test_element(self, version: SoapVersion) -> None:
        """An element is put into an envelope of the request's version."""
        made = answer_of(element("greetMeResponse", "Hello"), version)
        assert made.version is version
        assert made.content is not None
        assert (made.content.tag, made.content.text) == (f"{{{NS}}}greetMeResponse", "Hello")

    def test_envelope(self, version: SoapVersion) -> None:
        """A whole envelope goes out as it is, headers included."""
        root = wrap(element("greetMeResponse"), version)
        header = etree.Element(f"{{{version.namespace}}}Header")
        root.insert(0, header)
        assert answering(root).answer(accepted(version)).envelope is root

    def test_none(self, version: SoapVersion) -> None:
        """None makes an empty body."""
        made = answer_of(None, version)
        assert made.version is version
        assert made.content is None

    @pytest.mark.parametrize("raised", [True, False])
    def test_fault(self, version: SoapVersion, raised: bool) -> None:
        """A SoapFaultError becomes a fault, whether raised or returned."""
        error = SoapFaultError("too late", blame="Sender", detail=element("hour"))
        service = Service()

        @service.operation(GREET)
        def greet(request: Request) -> SoapFaultError:
            if raised:
                raise error
            return error

        fault = read_fault(as_envelope(service.answer(accepted(version)).envelope))
        assert fault is not None
        assert (fault.version, fault.reason, fault.subcode) == (version, "too late", None)
        assert fault.code == f"{{{version.namespace}}}" + ("Client" if version is SOAP_11 else "Sender")
        assert fault.detail is not None
        assert [each.tag for each in fault.detail] == [f"{{{NS}}}hour"]

    def test_another_exception(self, version: SoapVersion, caplog: pytest.LogCaptureFixture) -> None:
        """Any other exception is logged; the peer learns that the service failed, and nothing of its insides."""
        fault = fault_of(RuntimeError("password is 123"), version)
        assert fault.reason == "the service failed"
        assert fault.code.endswith("Server" if version is SOAP_11 else "Receiver")
        assert fault.detail is None
        assert f"the function for {GREET} failed; its request came from " in caplog.text
        (record,) = [each for each in caplog.records if each.exc_info]
        assert (record.levelname, record.operation) == ("ERROR", GREET)
        assert f"JMSCorrelationID {record.correlation_id!r}" in caplog.text
        assert "password is 123" in caplog.text

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            ("Hello", "must return an element, a SoapFaultError, None or a Reply, got str"),
            (b"<a/>", "got bytes"),
            (False, "got bool"),
            (etree.Comment("Hello"), "got _Comment"),
            (etree.Entity("hello"), "got _Entity"),
        ],
    )
    def test_wrong_type(
        self, version: SoapVersion, answer: object, says: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What is no answer is logged, and is the service's failure."""
        assert fault_of(answer, version).reason == "the service failed"
        assert says in caplog.text

    @pytest.mark.parametrize(
        "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), *(each() for each in (BaseException, OSError))]
    )
    def test_whatever_is_raised(
        self, version: SoapVersion, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What would end a thread or a program is the service's failure, too: the request is answered."""
        service = Service()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            raise error

        fault = read_fault(as_envelope(service.answer(accepted(version)).envelope))
        assert fault is not None
        assert fault.reason == "the service failed"
        assert type(error).__name__ in caplog.text

    def test_envelope_without_body(self, version: SoapVersion, caplog: pytest.LogCaptureFixture) -> None:
        """An envelope without Body is the service's failure."""
        broken = etree.Element(f"{{{version.namespace}}}Envelope")
        assert fault_of(broken, version).reason == "the service failed"
        assert "has no Body" in caplog.text

    def test_envelope_of_the_other_version(self, version: SoapVersion, caplog: pytest.LogCaptureFixture) -> None:
        """A request in one SOAP version is not answered in the other."""
        other = SOAP_12 if version is SOAP_11 else SOAP_11
        fault = fault_of(wrap(None, other), version)
        assert (fault.version, fault.reason) == (version, "the service failed")
        assert f"an envelope of the request's version, SOAP {version}, got another" in caplog.text

    def test_no_operation(self, version: SoapVersion) -> None:
        """A request that no function answers is the sender's mistake; the fault names what there is."""
        made = answering(None).answer(accepted(version, operation="greetYou")).envelope
        fault = read_fault(as_envelope(made))
        assert fault is not None
        assert fault.reason == f"no operation for the element {{{NS}}}greetYou; there are: {GREET}"
        assert fault.code.endswith("Client" if version is SOAP_11 else "Sender")


def test_no_operation() -> None:
    """A request with an empty body, to a service without operations, is answered too."""
    body = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body/></e:Envelope>'
    fault = read_fault(as_envelope(Service().answer(accepted(body=body.encode())).envelope))
    assert fault is not None
    assert fault.reason == "no operation for the element (none); there are: none"


class TestTheFunctionsOwn:
    """Elements that a function returns stay its own."""

    def test_returned_again_and_again(self) -> None:
        """A function may return one and the same element to many requests at once."""
        constant = element("greetMeResponse", "Hello")
        service = answering(constant)
        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(service.answer, accepted()) for _ in range(100)]
        assert all(len(as_envelope(each.result().envelope).body) == 1 for each in answers)
        assert constant.getparent() is None

    def test_echo(self) -> None:
        """A function may return the request's element, which stays in the request."""
        event = accepted()
        service = Service()
        service.operation(GREET)(lambda request: request.element)
        made = as_envelope(service.answer(event).envelope)
        assert made.content is not None
        assert made.content.text == "Ann"
        assert event.envelope.content is not None

    @pytest.mark.parametrize("is_seen", [False, True], ids=["sent at once", "seen by middleware"])
    @pytest.mark.parametrize("body", [envelope("Ann"), envelope("Ann").decode()], ids=["bytes", "text"])
    def test_part_of_a_document(self, is_seen: bool, body: bytes | str) -> None:
        """A part of a document keeps its prefixes, as a text may refer to them, but not the text that follows it."""
        document = etree.fromstring('<all xmlns:kind="urn:kind"><part type="kind:long">é</part>, and so on</all>')
        made = answering(document[0]).answer(accepted())
        if is_seen:
            made.add_header(element("seen"))
        node = RespondingNode(Setting())
        assert isinstance(node.receive(request_message("greeter", queue("answers"), body)), RequestAccepted)
        content = made.content
        assert (content is None) is is_seen
        response = node.respond(made.envelope) if content is None else node.respond_with(content, SOAP_11)
        assert type(response.body) is type(body)
        part = as_envelope(xml.parse(response.body)).content  # type: ignore[arg-type]
        assert part is not None
        assert (part.text, part.tail, part.nsmap["kind"]) == ("é", None, "urn:kind")

    def test_detail(self) -> None:
        """One error may be raised many times."""
        error = SoapFaultError("no", detail=element("why"))
        for _ in range(2):
            detail = fault_of(error).detail
            assert detail is not None
            assert len(detail) == 1


class TestFaults:
    """Faults as functions make them, right or not."""

    @pytest.mark.parametrize(
        ("blame", "code"),
        [
            ("Sender", "Client"),
            ("Receiver", "Server"),
            ("Client", "Client"),
            ("Server", "Server"),
            ("MustUnderstand", "MustUnderstand"),
        ],
    )
    def test_blame(self, blame: str, code: str) -> None:
        """Either SOAP version's words are understood."""
        assert fault_of(SoapFaultError("no", blame=blame)).code == f"{{{SOAP_11.namespace}}}{code}"

    def test_changed_afterwards(self, caplog: pytest.LogCaptureFixture) -> None:
        """A fault that makes no sense any more when it is to be sent is the service's failure."""
        error = SoapFaultError("no")
        error.blame = ["Sender"]  # type: ignore[assignment]
        assert fault_of(error).reason == "the service failed"
        assert "TypeError" in caplog.text

    @pytest.mark.parametrize(
        ("reason", "said"),
        [(ValueError("too late"), "too late"), (None, "no reason given"), (5, "5"), ("a\0", "a\ufffd")],
    )
    def test_reason(self, reason: object, said: str) -> None:
        """The reason is text, whatever was given."""
        assert fault_of(SoapFaultError(reason)).reason == said

    def test_detail_that_is_no_element(self, caplog: pytest.LogCaptureFixture) -> None:
        """A detail that is no element is left out, and logged."""
        fault = fault_of(SoapFaultError("no", detail="because"))
        assert (fault.reason, fault.detail) == ("no", None)
        assert "the detail of a fault must be an element, got 'because'" in caplog.text

    @pytest.mark.parametrize("number", [0, 1, 3])
    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    def test_passed_on(self, version: SoapVersion, number: int) -> None:
        """A fault that a service got from another goes on with what was in its detail, in the request's version."""
        received = build_fault(version, "no", detail=element("why0"))
        first = read_fault(as_envelope(received))
        assert first is not None
        detail = first.detail
        assert detail is not None
        if number == 0:
            detail.clear()
        detail.extend([element(f"why{more}") for more in range(1, number)])
        for wanted in (SOAP_11, SOAP_12):
            passed_on = fault_of(first.as_error(), wanted)
            tags = [] if passed_on.detail is None else [each.tag for each in passed_on.detail]
            assert tags == [f"{{{NS}}}why{index}" for index in range(number)]
        assert len(detail) == number

    def test_of_a_one_way_message(self, caplog: pytest.LogCaptureFixture) -> None:
        """A fault for a one-way message goes to nobody, so it is logged."""
        answering(SoapFaultError("too late")).answer(accepted(reply_to=None))
        assert "goes to nobody: too late" in caplog.text


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
class TestHeaders:
    """SOAP header blocks, in and out."""

    def event(self, version: SoapVersion, *blocks: str) -> RequestAccepted:
        header = f"<e:Header>{''.join(blocks)}</e:Header>".encode()
        body = envelope("Ann", version).replace(b"<e:Body", header + b"<e:Body")
        return accepted(version, body=body)

    def test_not_understood(self, version: SoapVersion) -> None:
        """A block that must be understood, and is not, is answered with that fault; no function runs."""
        ran: list[Request] = []
        service = Service(understands=["{urn:known}*", "{urn:other}known"], roles=["urn:me"])
        service.operation(GREET)(ran.append)
        must = 'e:mustUnderstand="1"'
        known = (f'<a xmlns="urn:known" {must}/>', f'<known xmlns="urn:other" {must}/>', '<b xmlns="urn:b"/>')
        service.answer(self.event(version, *known))
        assert len(ran) == 1
        made = as_envelope(service.answer(self.event(version, *known, f'<b xmlns="urn:b" {must}/>')).envelope)
        fault = read_fault(made)
        assert fault is not None
        assert fault.code == f"{{{version.namespace}}}MustUnderstand"
        assert fault.reason == "header blocks that are not understood, and must be: {urn:b}b"
        role = "actor" if version is SOAP_11 else "role"
        for whose, times in (("urn:me", 1), ("urn:somebody", 2)):
            service.answer(self.event(version, f'<b xmlns="urn:b" {must} e:{role}="{whose}"/>'))
            assert len(ran) == times

    def test_out(self, version: SoapVersion) -> None:
        """A Reply brings headers; the elements stay the function's own."""
        block = element("guard", "Bob")
        for _ in range(2):
            made = answer_of(Reply(element("greetMeResponse"), headers=iter([block])), version)
            assert made.header is not None
            assert [(each.tag, each.text) for each in made.header] == [(block.tag, "Bob")]
            assert made.content is not None
        assert block.getparent() is None

    def test_no_headers(self, version: SoapVersion, caplog: pytest.LogCaptureFixture) -> None:
        """What are no headers is the service's failure, and said."""
        assert fault_of(Reply(None, headers={"guard": "Bob"}), version).reason == "the service failed"
        assert "the headers of a Reply must be elements, got {'guard': 'Bob'}" in caplog.text
        assert fault_of(Reply(wrap(None, version), headers=[element("a")]), version).reason == "the service failed"
        assert "which has its own Header" in caplog.text
