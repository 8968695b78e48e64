"""SET NOTIFY, NOOP and QUIT.

Spec: SMQP 4.1.6.5, 4.1.15, 4.1.16.
"""

from __future__ import annotations

from typing import Final

from brokers.smqp.dialogue import Heard
from brokers.smqp.replies import Code, plain
from brokers.smqp.server.core import Core
from brokers.smqp.server.session import Answer, Session

OK: Final = Answer(plain(Code.OK))


def port(core: Core, session: Session, heard: Heard) -> None:
    """Connect to the port where the client listens now, and answer once that succeeded or failed."""
    assert heard.command is not None
    session.is_busy = True
    session.channel.set_port(heard.command.port, lambda code: session.finish(Answer(plain(code))))


def suspend(core: Core, session: Session, heard: Heard) -> Answer:
    """Send no messages until RESUME."""
    session.channel.is_suspended = True
    return OK


def resume(core: Core, session: Session, heard: Heard) -> Answer:
    """Send messages again; without SUSPEND before, that changes nothing."""
    session.channel.is_suspended = False
    core.wake(session)
    return OK


def noop(core: Core, session: Session, heard: Heard) -> Answer:
    """Do nothing, and say so; QUIT too, after which the connection ends."""
    return OK
