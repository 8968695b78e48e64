"""SET NOTIFY, NOOP and QUIT.

Spec: SMQP 4.1.6.5, 4.1.15, 4.1.16.
"""

from __future__ import annotations

from functools import partial

from brokers import events
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, plain
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.session import OK, SmqpAnswer, SmqpSession


def port(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer | None:
    """Connect to the port where the client listens now.

    Deviation: by default the reply is 200, at once, whether or not connecting succeeds: otherwise clients could find
    out which ports are open on a machine that they are not allowed to connect to.
    """
    wanted, options = heard.known.port, core.options
    if wanted not in options.client_ports and wanted != options.client_port:
        raise RefusedError(ReplyCode.FORBIDDEN, f"clients are not notified at port {wanted}")
    if session.missed_ports >= options.max_failures:
        raise RefusedError(
            ReplyCode.FORBIDDEN, f"{session.missed_ports} ports were tried, but no message was taken there"
        )
    session.missed_ports += 1  # until a message is taken
    if options.hide_ports:
        session.channel.set_port(wanted, partial(_log, session, wanted))
        return OK
    session.is_busy = True
    session.channel.set_port(wanted, partial(_tried, session, wanted))
    return None


def _tried(session: SmqpSession, wanted: int, code: ReplyCode) -> None:
    """Reply with the result; the limit of missed ports keeps clients from scanning many."""
    if code is ReplyCode.OK:
        session.missed_ports = 0
    _log(session, wanted, code)
    session.finish(SmqpAnswer(plain(code)))


def _log(session: SmqpSession, wanted: int, code: ReplyCode) -> None:
    if code is not ReplyCode.OK:
        events.SMQP_SERVER_PEER_UNREACHABLE.log(session.owner.name, wanted, session.address, code.name)


def suspend(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Send no messages until RESUME."""
    session.channel.is_suspended = True
    return OK


def resume(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Send messages again; this has no effect without SUSPEND before."""
    session.channel.is_suspended = False
    core.wake(session)
    return OK


def noop(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Reply OK; also for QUIT, after which the connection ends."""
    return OK
