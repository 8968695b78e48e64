"""Which function a request is for: SOAPJMS_targetService, then the action, then the element in the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from calling_kit import NS, SOAP_11, Peers, element, envelope
from service_kit import accepted

from brokers import Connection
from soapjms import Client, Dispatcher, Policy, Request, Service, Services, UsageError
from soapjms.protocol import names
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.protocol.responding import RequestAccepted
from soapjms.service.operations import OperationRoute, Routes
from soapjms.service.request import DEFAULT

GREET, PING = f"{{{NS}}}greetMe", f"{{{NS}}}pingMe"


def saying(what: str, *operations: tuple[str, str | None], policy: Policy = DEFAULT) -> Service:
    """Make a service whose operations answer with its name and theirs."""
    service = Service(policy=policy)
    for name, action in operations:

        def answer(request: Request, name: str = name, action: str | None = action) -> Any:
            return element("said", f"{what} {name.rpartition('}')[2]} {action}")

        service.operation(name, action=action)(answer)
    return service


def request(operation: str = "greetMe", action: str | None = None, target: str | None = None) -> RequestAccepted:
    """Make a request as it arrives."""
    properties = {names.SOAP_ACTION: action, names.TARGET_SERVICE: target}
    body = envelope("Ann", SOAP_11, operation)
    if not operation:
        body = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body/></e:Envelope>'.encode()
    given = {name: value for name, value in properties.items() if value is not None}
    return accepted(body=body, properties=given)


def said(service: Service, **of: Any) -> str:
    """Return what a service answers to a request, or the reason of its fault."""
    made = as_envelope(service.answer(request(**of)).envelope)
    fault = read_fault(made)
    if fault is not None:
        assert fault.code.endswith("}Client")
        return fault.reason
    assert made.content is not None
    return made.content.text or ""


class TestOneService:
    """Action, then element."""

    def test_element(self) -> None:
        """Without an action, and with one that is nobody's, the element decides."""
        service = saying("a", (GREET, "urn:greet"), (PING, None))
        for action in (None, "", "urn:whatever"):
            assert said(service, action=action) == "a greetMe urn:greet"
            assert said(service, operation="pingMe", action=action) == "a pingMe None"

    def test_action_tells_apart(self) -> None:
        """Operations with one and the same element are told apart by their actions."""
        service = saying("a", (GREET, "urn:greet"), (GREET, "urn:greet:twice"))
        assert said(service, action="urn:greet") == "a greetMe urn:greet"
        assert said(service, action='"urn:greet:twice"') == "a greetMe urn:greet:twice"
        assert said(service) == (
            f"the element {GREET} is of 2 operations, which soapAction tells apart: 'urn:greet', 'urn:greet:twice'"
        )

    def test_contradiction(self) -> None:
        """The action of one operation with the element of another is neither."""
        service = saying("a", (GREET, "urn:greet"), (PING, "urn:ping"))
        assert said(service, action="urn:ping") == (
            f"the soapAction 'urn:ping' goes with the element {PING}, and the body holds {GREET}"
        )

    def test_shared_action(self) -> None:
        """Of several operations with one action the element decides."""
        service = saying("a", (GREET, "urn:all"), (PING, "urn:all"))
        assert said(service, action="urn:all") == "a greetMe urn:all"
        assert said(service, operation="pingMe", action="urn:all") == "a pingMe urn:all"

    def test_twice(self) -> None:
        """Element and action are registered once."""
        with pytest.raises(UsageError, match="is registered already"):
            saying("a", (GREET, "urn:greet"), (GREET, "urn:greet"))

    def test_empty_body(self) -> None:
        """An empty body is one element more; the fault names what there is, with its element where that is another."""
        routes = Routes()
        routes.add(OperationRoute("list", "", "urn:list", saying, saying, DEFAULT))
        routes.add(OperationRoute("greet", GREET, None, saying, saying, DEFAULT))
        found = routes.find("", "urn:list")
        assert isinstance(found, OperationRoute)
        assert found.name == "list"
        assert routes.find(PING, None) == (
            f"no operation for the element {PING}; there are: greet ({GREET}), list (an empty body)"
        )
        assert routes.find(GREET, "urn:list") == (
            f"the soapAction 'urn:list' goes with the element (none), and the body holds {GREET}"
        )


class TestServices:
    """Several services: targetService first."""

    def test_target(self) -> None:
        """The service that is named answers, whatever the others have."""
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (GREET, None))})
        assert said(services, target="A") == "a greetMe None"
        assert said(services, target="B") == "b greetMe None"
        assert said(services, target="B", operation="pingMe").startswith(f"no operation for the element {PING}")

    def test_unknown_target(self) -> None:
        """A service that is not there is the sender's mistake; the fault names those there are."""
        services = Services({"A": saying("a", (GREET, None))}, default="A")
        assert said(services, target="C") == "no service 'C', which targetService names; there are: A"

    def test_default(self) -> None:
        """The default is for requests that name none."""
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (GREET, None))}, default="B")
        for target in (None, ""):
            assert said(services, target=target) == "b greetMe None"

    def test_by_action(self) -> None:
        """Without a name the service with that action, even if others have the element."""
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (GREET, "urn:b"))})
        assert said(services, action="urn:b") == "b greetMe urn:b"
        assert services.knows_action("urn:b")
        assert not services.knows_action(None)

    def test_by_element(self) -> None:
        """Without an action the one with that element."""
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (PING, None))})
        assert said(services) == "a greetMe None"
        assert said(services, operation="pingMe") == "b pingMe None"

    def test_several(self) -> None:
        """What fits several is refused, and the fault says how to choose."""
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (GREET, None))})
        assert said(services) == "several services have this operation; SOAPJMS_targetService says which: A, B"

    def test_none(self) -> None:
        """What fits none is refused with what each has."""
        services = Services({"A": saying("a", (GREET, None)), "B": Service()})
        assert said(services, operation="pingMe") == (
            f"A: no operation for the element {PING}; there are: {GREET}; "
            f"B: no operation for the element {PING}; there are: none"
        )

    def test_policies(self) -> None:
        """Policies and names of operations are those of the service."""
        patient = Policy(retries=3)
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (PING, None), policy=patient)})
        assert services.find(request(target="B")).policy is patient  # no such operation, but a service
        assert services.find(request(operation="pingMe")).policy is patient
        assert services.find(request(target="C")).policy is DEFAULT
        assert services.find(request()).operation == GREET
        assert services.find(request(target="B")).operation == ""
        assert list(services.operations) == [f"A/{GREET}", f"B/{PING}"]

    @pytest.mark.parametrize("given", [{}, "A", {"A": 1}, {"": Service()}, {1: Service()}])
    def test_no_services(self, given: Any) -> None:
        """What are no services is refused."""
        with pytest.raises(UsageError, match=r"mapping of names to services|must map a name to a soapjms\.Service"):
            Services(given)

    def test_no_default(self) -> None:
        """The default is one of them; operations are registered with one of them."""
        with pytest.raises(UsageError, match="default must be one of A, got 'C'"):
            Services({"A": Service()}, default="C")
        assert not hasattr(Services({"A": Service()}), "operation")


class TestServed(Peers):
    """Through a dispatcher, with clients that name a service in their URI."""

    @pytest.fixture
    def served(self, other: Connection) -> Iterator[Dispatcher]:
        services = Services({"A": saying("a", (GREET, None)), "B": saying("b", (GREET, None))}, default="A")
        with Dispatcher(other, "jms:queue:both", services) as dispatcher:
            yield dispatcher

    @pytest.mark.usefixtures("served")
    def test_target_service(self, connection: Connection) -> None:
        """targetService of the URI reaches the service."""
        for target, answer in (("?targetService=B", "b greetMe None"), ("", "a greetMe None")):
            with Client(connection, f"jms:queue:both{target}") as client:
                response = client.call(envelope("Ann"), timeout=10)
                assert response.element is not None
                assert response.element.text == answer
