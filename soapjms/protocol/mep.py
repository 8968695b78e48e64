"""States and inputs of the four roles, and one transition table for each role. Everything that moves state is here.

A missing entry of a table is an error: an input that the state does not allow. The diagrams in the docs are drawn from
these tables.

Spec: SOAP/JMS 2.6.1, 2.6.2, 2.7; SOAP 1.2 Part 2 6.2; SOAP 1.2 Part 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from soapjms.protocol.errors import LocalProtocolError
from soapjms.protocol.names import FailureReason, Role

CONTEXT: Final = "http://www.w3.org/2003/05/soap/bindingFramework/ExchangeContext/"
ROLE_PROPERTY: Final = CONTEXT + "Role"
STATE_PROPERTY: Final = CONTEXT + "State"
FAILURE_REASON_PROPERTY: Final = CONTEXT + "FailureReason"


class State(StrEnum):
    """The states of a message exchange at one node."""

    INIT = "Init"
    REQUESTING = "Requesting"
    SENDING_RECEIVING = "Sending+Receiving"
    RECEIVING = "Receiving"
    RECEIVING_SENDING = "Receiving+Sending"
    SUCCESS = "Success"
    FAIL = "Fail"


class Input(StrEnum):
    """What can happen to a node."""

    REQUEST_STARTED = "request started to be sent"
    REQUEST_ARRIVED = "request arrived"
    RESPONSE_ARRIVED = "correlated response arrived"
    RESPONSE_READ = "response was well-formed"
    RESPONSE_BROKEN = "response was not well-formed"
    RESPONSE_READY = "response is ready to be sent"
    RESPONSE_SENT = "response was sent"
    MESSAGE_SENT = "message was sent"
    MESSAGE_READ = "message was read"
    SENDING_FAILED = "sending failed"
    RECEIVING_FAILED = "receiving failed"


Table = Mapping[State, Mapping[Input, State]]

REQUESTING_NODE: Final[Table] = {  # SOAP/JMS 2.6.1
    State.INIT: {Input.REQUEST_STARTED: State.REQUESTING, Input.SENDING_FAILED: State.FAIL},
    State.REQUESTING: {
        Input.RESPONSE_ARRIVED: State.SENDING_RECEIVING,
        Input.RECEIVING_FAILED: State.FAIL,
        Input.SENDING_FAILED: State.FAIL,
    },
    State.SENDING_RECEIVING: {Input.RESPONSE_READ: State.SUCCESS, Input.RESPONSE_BROKEN: State.FAIL},
    State.SUCCESS: {},
    State.FAIL: {},
}
RESPONDING_NODE: Final[Table] = {  # SOAP/JMS 2.6.2
    State.INIT: {Input.REQUEST_ARRIVED: State.RECEIVING},
    State.RECEIVING: {Input.RESPONSE_READY: State.RECEIVING_SENDING, Input.RECEIVING_FAILED: State.FAIL},
    State.RECEIVING_SENDING: {Input.RESPONSE_SENT: State.SUCCESS, Input.SENDING_FAILED: State.FAIL},
    State.SUCCESS: {},
    State.FAIL: {},
}
SENDING_NODE: Final[Table] = {  # SOAP/JMS 2.7.1
    State.INIT: {Input.MESSAGE_SENT: State.SUCCESS, Input.SENDING_FAILED: State.FAIL},
    State.SUCCESS: {},
    State.FAIL: {},
}
RECEIVING_NODE: Final[Table] = {  # SOAP/JMS 2.7.2
    State.INIT: {Input.REQUEST_ARRIVED: State.RECEIVING},
    State.RECEIVING: {Input.MESSAGE_READ: State.SUCCESS, Input.RECEIVING_FAILED: State.FAIL},
    State.SUCCESS: {},
    State.FAIL: {},
}
TABLES: Final[Mapping[Role, Table]] = {
    Role.REQUESTING: REQUESTING_NODE,
    Role.RESPONDING: RESPONDING_NODE,
    Role.SENDING: SENDING_NODE,
    Role.RECEIVING: RECEIVING_NODE,
}
FAILURES: Final[Mapping[Input, FailureReason]] = {
    Input.SENDING_FAILED: FailureReason.TRANSMISSION_FAILURE,
    Input.RECEIVING_FAILED: FailureReason.RECEPTION_FAILURE,
    Input.RESPONSE_BROKEN: FailureReason.RECEPTION_FAILURE,
}
"""The failure reason for each input that leads to Fail."""


class StateMachine:
    """The state of one exchange at one node, moved by the table of its role.

    Attributes:
        role: the role of the node.
        state: the present state.
        failure_reason: set in the state Fail, otherwise None.
    """

    __slots__ = ("_table", "failure_reason", "role", "state")

    def __init__(self, role: Role) -> None:
        self.role = role
        self.state = State.INIT
        self.failure_reason: FailureReason | None = None
        self._table = TABLES[role]

    def allows(self, happened: Input) -> bool:
        """Say whether the table has an entry for this input in the present state."""
        return happened in self._table[self.state]

    def step(self, happened: Input) -> State:
        """Move to the next state and return it.

        Raises:
            LocalProtocolError: the state does not allow the input; the message lists the allowed inputs.
        """
        try:
            self.state = self._table[self.state][happened]
        except KeyError:
            allowed = ", ".join(self._table[self.state]) or "nothing, it is final"
            raise LocalProtocolError(
                f"{self.role} in state {self.state}: {happened.value!r} is not possible; possible: {allowed}"
            ) from None
        if self.state is State.FAIL:
            self.failure_reason = FAILURES[happened]
        return self.state

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the binding framework: role, state, and in Fail the failure reason, by their URIs."""
        values = {ROLE_PROPERTY: str(self.role), STATE_PROPERTY: str(self.state)}
        if self.failure_reason is not None:
            values[FAILURE_REASON_PROPERTY] = str(self.failure_reason)
        return values
