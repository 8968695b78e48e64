"""LOGIN and PASS, and SET LOGIN.

Spec: SMQP 4.1.1, 4.1.6.3; CLEAR is the only method.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from brokers.smqp.protocol.commands import CommandKind
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.ids import format_date, format_timeout
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, ReplyForm, listing, plain
from brokers.smqp.server.accounts import Account, Password
from brokers.smqp.server.actions import CheckPassword, HashPassword
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.session import OK, SmqpAnswer, SmqpSession, Stage

CLEAR: Final = "CLEAR"
OWN_FIELDS: Final = {
    CommandKind.SET_LOGIN_NAME: "NAME",
    CommandKind.SET_LOGIN_EMAIL: "EMAIL",
    CommandKind.SET_LOGIN_ADDRESS: "ADDRESS",
    CommandKind.SET_LOGIN_PHONE: "PHONE",
}


def need_method(method: str) -> None:
    """Check that an authentication method is supported.

    Raises:
        RefusedError: 405.
    """
    if method != CLEAR:
        raise RefusedError(ReplyCode.NOT_ALLOWED, f"the authentication method must be CLEAR, got {method}")


def login(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Take the name of an account; its password must follow."""
    if session.stage not in (Stage.STRANGER, Stage.NAMED):
        raise RefusedError(ReplyCode.NOT_ALLOWED, "this connection is already logged in")
    session.stage = Stage.STRANGER
    need_method(heard.known.method)
    if core.accounts.find(heard.known.account) is None and not core.options.hide_accounts:
        raise RefusedError(ReplyCode.NOT_FOUND, f"there is no account {heard.known.account}")
    session.claimed = heard.known.account
    session.stage = Stage.NAMED
    return SmqpAnswer(plain(ReplyCode.OK), ReplyForm.BARE)


def password(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer | None:
    """Take a password: for a login, or the old or the new one of a change."""
    if session.stage in (Stage.STRANGER, Stage.READY):
        raise RefusedError(ReplyCode.BAD_REQUEST, "PASS must follow LOGIN or SET LOGIN PASSWORD")
    if heard.known.account.casefold() != session.claimed.casefold():
        return checked(core, session, is_right=False)
    session.is_busy = True
    if session.stage is Stage.NEW_PASSWORD:
        core.do(HashPassword(session.number, heard.known.password))
    else:
        account = core.accounts.find(session.claimed)
        stored = None if account is None else core.accounts.password(account.number)
        core.do(CheckPassword(session.number, heard.known.password, stored, session.address, session.claimed))
    return None


def checked(core: SmqpCore, session: SmqpSession, *, is_right: bool) -> SmqpAnswer:
    """Continue a login, or a change, once it is known whether the password is right."""
    if session.stage is Stage.NEW_PASSWORD:
        session.stage = Stage.READY
        raise RefusedError(ReplyCode.UNAUTHORIZED, "PASS must have the account of SET LOGIN PASSWORD")
    if session.stage is Stage.OLD_PASSWORD:
        session.stage = Stage.NEW_PASSWORD if is_right else Stage.READY
    account = core.accounts.find(session.claimed)
    if not is_right or account is None:
        if session.stage is Stage.NAMED:
            session.stage = Stage.STRANGER
        session.failures += 1
        raise RefusedError(ReplyCode.UNAUTHORIZED, "the account or the password is wrong")
    return _enter(core, session, account) if session.stage is Stage.NAMED else OK


def unseen(session: SmqpSession) -> SmqpAnswer:
    """Refuse a password that was not compared, because too many were wrong.

    Raises:
        RefusedError: 503.
    """
    session.stage = Stage.STRANGER if session.stage is Stage.NAMED else Stage.READY
    session.failures += 1
    raise RefusedError(ReplyCode.UNAVAILABLE, "too many wrong passwords came from there; try again later", is_told=True)


def hashed(core: SmqpCore, session: SmqpSession, new: Password) -> SmqpAnswer:
    """Store a new password."""
    session.stage = Stage.READY
    core.accounts.set_password(session.owner.number, new)
    return OK


def _enter(core: SmqpCore, session: SmqpSession, account: Account) -> SmqpAnswer:
    session.stage = Stage.STRANGER
    if len(core.sessions_of(account.number)) >= core.options.max_logins:
        raise RefusedError(ReplyCode.FORBIDDEN, f"{account.name} is logged in {core.options.max_logins} times already")
    session.account = account
    session.guid = core.accounts.next_guid(account)
    session.stage = Stage.READY
    session.reader.takes_messages = True
    session.failures = 0
    core.enter(session)
    lines = [f"Topic: {core.directory.get(account.topic).path}"]
    if core.options.announces_timeout:
        lines.append(f"Timeout: {format_timeout(core.options.default_timeout)}")
    now = datetime.fromtimestamp(core.clock(), UTC)
    lines += [f"Time: {format_date(now, core.options.dialect)}", f"Guid: {session.guid}"]
    return SmqpAnswer(listing(tuple(lines), f"OK SMQP/1.0 {core.options.context}"))


def set_password(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Ask for the old password, then for the new one."""
    need_method(heard.known.method)
    session.claimed = session.owner.name
    session.stage = Stage.OLD_PASSWORD
    return OK


def set_own(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Set the name, mail address, postal address or phone number of the account's owner."""
    assert isinstance(heard.known.kind, CommandKind)
    core.accounts.set_field(session.owner.number, OWN_FIELDS[heard.known.kind], heard.known.value)
    return OK
