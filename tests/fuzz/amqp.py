"""Clients of the AMQP listener that say anything, before and after they are let in, over TCP and WebSocket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final

from amqp_mutations import LOGIN, SHORT, Entrance, Phase, conversation, cut_anywhere, seldom_garbled, with_mistakes
from amqp_raw import ACCEPTED, Raw
from calling_kit import eventually
from proton import Array, Data, Described, Message, symbol, uint, ulong

from brokers.amqp.listener import Listener, Options
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Performative, pack
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker
from fuzz.row import Case, Row

USER = "ann"
PLAIN: Final = Phase([SASL_HEADER, pack(Performative.INIT, symbol("PLAIN"), b"\0ann\0ann", "localhost")], 1)
HEADERS: Final = (SASL_HEADER, AMQP_HEADER, b"AMQP\x02\x01\0\0", b"AMQP\0\0\x09\x01", b"HTTP/1.1", b"AMQP", b"\0" * 8)
RESPONSES: Final = (
    b"\0ann\0ann",
    b"\0ann\0wrong",
    b"ann\0ann\0ann",
    b"eve\0ann\0ann",
    b"\0\0",
    b"",
    b"\0" * 4000,
    b"\xff\0\xff\0\xff",
    b"\0ann",
    "\0ann\0ann",
    None,
    7,
)
MECHANISMS: Final = ("PLAIN", "ANONYMOUS", "EXTERNAL", "plain", "", "x" * 3000, "SCRAM-SHA-256", "PLAIN\0")

ENTRANCES: Final = {
    "tcp": (Options(), None),
    "websocket csprd01": (Options(binding=WebSocketBinding.CSPRD01), "AMQPWSB10"),
    "websocket": (Options(binding=WebSocketBinding.LENIENT), "amqp"),
    "tcp with users": (Options(users={USER: USER}), None),
    "websocket with users": (Options(users={USER: USER}, binding=WebSocketBinding.LENIENT), "amqp"),
}


def frame(chance: Random) -> bytes:
    """Make a SASL frame: any of them, with any fields."""
    mechanism, response = chance.choice(MECHANISMS), chance.choice(RESPONSES)
    fields: list[Any] = chance.choice(
        [
            [symbol(mechanism), response, "localhost"],
            [symbol(mechanism), response],
            [symbol(mechanism)],
            [mechanism, response, None, uint(1), [1, {"a": None}]],
            [response],
            [],
            [Array(None, Data.SYMBOL, symbol("PLAIN"), symbol("x"))],
            [Described(ulong(0x41), [symbol(mechanism)])],
        ]
    )
    try:
        return pack(chance.choice([Performative.INIT, Performative.INIT, *Performative]), *fields)
    except Exception:  # what proton cannot write
        return pack(Performative.INIT)


def strangers(chance: Random) -> list[Phase]:
    """Say what is no login, or begins like one."""
    said = [Phase([chance.choice(HEADERS) if chance.random() < 0.2 else SASL_HEADER], 1)]
    for _ in range(chance.choice((1, 1, 2, 3, 40))):
        octets = frame(chance)
        if chance.random() < 0.3:
            at = chance.randrange(len(octets))
            octets = octets[:at] + chance.randbytes(1) + octets[at + chance.choice((0, 1, 1, 9)) :]
        said.append(Phase([octets], chance.choice((0, 1))))
    return said


class Listening:
    """Listeners of each kind, of one broker, and somebody who behaves at each of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._broker = Broker(max_messages=1000)
        self._listeners = {
            name: stack.enter_context(Listener(self._broker, port=0, options=options))
            for name, (options, _) in ENTRANCES.items()
        }
        plain = stack.enter_context(Listener(self._broker, port=0))
        self._said = conversation(plain.port)
        self._witness = stack.enter_context(Raw(plain.port))
        self._relay = self._witness.attach(None)
        self._witness.receive("witness", credit=1_000_000)
        self._number = 0
        self.look()

    def make(self, chance: Random) -> Case:
        """Choose a listener, and what it is told."""
        name = chance.choice(list(ENTRANCES))
        token = ENTRANCES[name][1]
        entrance = Entrance(self._listeners[name], token, SHORT, seldom_garbled(chance))
        if "users" not in name:
            said, became = with_mistakes(self._said, chance), name
        elif chance.random() < 0.4:
            said, became = strangers(chance), f"{name}, before login"
        elif chance.random() < 0.2:
            said, became = with_mistakes([PLAIN, *self._said], chance), f"{name}, in login"
        else:
            said, became = [PLAIN, *(each for each in with_mistakes(self._said, chance) if each is not LOGIN)], name
        cut = cut_anywhere(chance)

        def tell() -> str:
            entrance.say(said, cut)
            return became

        return Case(sum(len(unit) for each in said for unit in each.units), tell)

    def look(self) -> None:
        """See that nobody is left, that others are served, and that who knows the password is let in."""
        for name, each in self._listeners.items():
            eventually(lambda each=each: each.guests == 0, f"{name}: clients that hung up are gone", 20)
            if "users" in name and ENTRANCES[name][1] is None:
                with Raw(each.port, user=USER):
                    pass
        self._number += 1
        told = self._witness.outcome(
            self._witness.send(self._relay, Message(address="witness", body=f"{self._number}"))
        )
        assert (told.state, self._witness.take(1)) == (ACCEPTED, [f"{self._number}"])


@contextmanager
def listening() -> Iterator[Listening]:
    """Listen; no thread is left behind."""
    before = threading.active_count()
    with ExitStack() as stack:
        yield Listening(stack)
    eventually(lambda: threading.active_count() <= before, "threads have ended", 20)


ROW: Final = Row(
    name="amqp",
    holds="whatever a client says, others are served, nobody is left, and no error is logged",
    opens=listening,
    cases=20_000,
    gate=300,
    thresholds=(50, 5, 5),
    expected="is full: max_messages is 1000",  # a queue of dead letters that nobody takes
)
