"""The state tables of the four roles: every state times every input."""

from __future__ import annotations

from itertools import product

import pytest

from soapjms.protocol.errors import LocalProtocolError
from soapjms.protocol.mep import FAILURES, TABLES, Input, State, StateMachine
from soapjms.protocol.names import FailureReason, Role

# What the specification allows: role, state, input, next state. Everything else is refused.
ALLOWED = {
    # SOAP/JMS 2.6.1, requesting node
    (Role.REQUESTING, State.INIT, Input.REQUEST_STARTED): State.REQUESTING,
    (Role.REQUESTING, State.INIT, Input.SENDING_FAILED): State.FAIL,
    (Role.REQUESTING, State.REQUESTING, Input.RESPONSE_ARRIVED): State.SENDING_RECEIVING,
    (Role.REQUESTING, State.REQUESTING, Input.RECEIVING_FAILED): State.FAIL,
    (Role.REQUESTING, State.REQUESTING, Input.SENDING_FAILED): State.FAIL,
    (Role.REQUESTING, State.SENDING_RECEIVING, Input.RESPONSE_READ): State.SUCCESS,
    (Role.REQUESTING, State.SENDING_RECEIVING, Input.RESPONSE_BROKEN): State.FAIL,
    # 2.6.2, responding node
    (Role.RESPONDING, State.INIT, Input.REQUEST_ARRIVED): State.RECEIVING,
    (Role.RESPONDING, State.RECEIVING, Input.RESPONSE_READY): State.RECEIVING_SENDING,
    (Role.RESPONDING, State.RECEIVING, Input.RECEIVING_FAILED): State.FAIL,
    (Role.RESPONDING, State.RECEIVING_SENDING, Input.RESPONSE_SENT): State.SUCCESS,
    (Role.RESPONDING, State.RECEIVING_SENDING, Input.SENDING_FAILED): State.FAIL,
    # 2.7.1, sending node of a one-way message
    (Role.SENDING, State.INIT, Input.MESSAGE_SENT): State.SUCCESS,
    (Role.SENDING, State.INIT, Input.SENDING_FAILED): State.FAIL,
    # 2.7.2, receiving node of a one-way message
    (Role.RECEIVING, State.INIT, Input.REQUEST_ARRIVED): State.RECEIVING,
    (Role.RECEIVING, State.RECEIVING, Input.MESSAGE_READ): State.SUCCESS,
    (Role.RECEIVING, State.RECEIVING, Input.RECEIVING_FAILED): State.FAIL,
}
REASONS = {
    Input.SENDING_FAILED: FailureReason.TRANSMISSION_FAILURE,
    Input.RECEIVING_FAILED: FailureReason.RECEPTION_FAILURE,
    Input.RESPONSE_BROKEN: FailureReason.RECEPTION_FAILURE,
}
STATES = [(role, state) for role, table in TABLES.items() for state in table]


def machine_in(role: Role, state: State) -> StateMachine:
    """Make a machine that stands in a state."""
    machine = StateMachine(role)
    machine.state = state
    return machine


@pytest.mark.parametrize(("place", "happened"), list(product(STATES, Input)))
def test_every_state_and_input(place: tuple[Role, State], happened: Input) -> None:
    """Exactly the moves of the specification are possible; a move to Fail sets its failure reason."""
    role, state = place
    machine = machine_in(role, state)
    wanted = ALLOWED.get((role, state, happened))
    assert machine.allows(happened) is (wanted is not None)
    if wanted is None:
        with pytest.raises(LocalProtocolError, match=f"^{role} in state .*: '{happened.value}' is not possible"):
            machine.step(happened)
        assert machine.state is state
    else:
        assert machine.step(happened) is machine.state is wanted
    assert machine.failure_reason == (REASONS[happened] if wanted is State.FAIL else None)


def test_the_tables_hold_nothing_else() -> None:
    """The tables and the list above are the same; each state of a table can be reached from Init."""
    tables = {
        (role, state, happened): after
        for role, table in TABLES.items()
        for state, row in table.items()
        for happened, after in row.items()
    }
    assert tables == ALLOWED
    assert set(FAILURES) == {happened for (_, _, happened), after in tables.items() if after is State.FAIL}
    for role, table in TABLES.items():
        assert set(table) == {State.INIT, *(after for (of, _, _), after in tables.items() if of is role)}


@pytest.mark.parametrize("role", list(Role))
def test_final_states(role: Role) -> None:
    """Success and Fail are final, and the refusal says so."""
    for state in (State.SUCCESS, State.FAIL):
        with pytest.raises(LocalProtocolError, match="possible: nothing, it is final"):
            machine_in(role, state).step(Input.SENDING_FAILED)


def test_refusals_say_what_is_possible() -> None:
    """A refusal lists what the state allows."""
    with pytest.raises(LocalProtocolError, match="possible: response was well-formed, response was not well-formed"):
        machine_in(Role.REQUESTING, State.SENDING_RECEIVING).step(Input.MESSAGE_SENT)


def test_properties_of_the_binding_framework() -> None:
    """Role, state and failure reason are values of the properties that SOAP 1.2 names by URI."""
    context = "http://www.w3.org/2003/05/soap/bindingFramework/ExchangeContext/"
    machine = StateMachine(Role.REQUESTING)
    assert machine.properties == {context + "Role": "RequestingSOAPNode", context + "State": "Init"}
    machine.step(Input.SENDING_FAILED)
    assert machine.properties == {
        context + "Role": "RequestingSOAPNode",
        context + "State": "Fail",
        context + "FailureReason": "transmissionFailure",
    }
    assert [str(role) for role in Role] == [
        "RequestingSOAPNode",
        "RespondingSOAPNode",
        "SendingSOAPNode",
        "ReceivingSOAPNode",
    ]
