"""One process that serves: what it was told, finding the service, running until a signal tells it to end.

The signals are the same for all commands that run until they are told to end.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from threading import Event
from time import sleep
from traceback import extract_tb
from types import FrameType, ModuleType
from typing import Any, Final, TypeAlias

import click

import brokers
import soapjms
from brokers.connection import DEFAULT_TIMEOUT
from brokers.errors import BrokerError, NotInstalledError, UnknownSchemeError
from brokers.naming import NameNotFoundError, Names, NamingError
from brokers.threads.thread import Thread
from soapjms.bridge.wsgi import WsgiService
from soapjms.cli.configuration import OUR_LOGS
from soapjms.cli.connection import open_url, read_names
from soapjms.cli.status import USAGE
from soapjms.cli.status_page import library
from soapjms.cli.terminal import announce
from soapjms.observing import Health, Observer
from soapjms.protocol.errors import StoreError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, Profile
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Port
from soapjms.service.dispatcher import Dispatcher
from soapjms.service.operations import Operations
from soapjms.service.store.sqlite import SqliteStore
from soapjms.wsdl import read_wsdl

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
OVER: Final = b"\0"
"""What tells the listener to end; no signal has that number."""


@contextmanager
def ending(stop: Event) -> Iterator[None]:
    """Set `stop` at SIGTERM and SIGINT. A second SIGINT interrupts, for who does not want to wait.

    Another thread sets it, and hears of the signal from the interpreter itself, by a socket. The main thread may be
    within `stop.wait()`: if it holds the lock that setting needs, it would wait for itself; and it does not wake for a
    signal that reaches another thread, as after SIGSTOP, so no handler in Python would be called.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and seen:
            raise KeyboardInterrupt
        seen.append(number)

    def listen() -> None:
        while (octets := heard.recv(1)) != OVER:
            if octets[0] in SIGNALS:
                stop.set()

    listener = Thread(target=listen, name="soapjms-ending", daemon=True)
    listener.start()
    before = {each: signal.signal(each, note) for each in SIGNALS}
    woken = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        for each, handler in before.items():
            signal.signal(each, handler)
        told.send(OVER)
        listener.join()
        told.close()
        heard.close()


log = logging.getLogger("soapjms.serve")

NOT_THE_USERS: Final = (
    *(str(Path(each).parent) for each in (brokers.__file__, soapjms.__file__, importlib.__file__)),
    "<",
)
"""How the names of files begin that a user did not write."""

BEAT: Final = 1.0
"""Seconds between two looks at how the dispatcher is."""

PING_TIMEOUT: Final = 2.0
LEAVE_TIMEOUT: Final = 1.0
FAILED: Final = 1

Report: TypeAlias = Callable[[Health], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the command line says; picklable, for processes that are started. The URL may hold a password.

    With `wsgi_path` the target is a WSGI application, which is to answer at that path. `debug` is that of every
    command: our own log with all that it has, whatever `log_level` says. With `as_json` what is served is said as JSON.
    """

    target: str
    connection: str = field(repr=False)
    wsgi_path: str | None = None
    uri: str | None = None
    wsdl: str | None = None
    port: str | None = None
    workers: int = 4
    prefetch: int = 1
    transactions: bool = True
    store: str | None = None
    lease: float = 5.0
    transaction_timeout: float = 30.0
    max_deliveries: int = 6
    stalled_after: float = 60.0
    dead_letters: str | None = None
    reply_topic: tuple[str, ...] = ()
    reply_queue: tuple[str, ...] = ()
    durable: str | None = None
    middleware: tuple[str, ...] = ()
    verify: str | None = None
    profile: str | None = None
    names: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    grace: float = 30.0
    metrics: bool = False
    traces: bool = False
    log_level: str = "INFO"
    debug: bool = False
    as_json: bool = False


def run(serving: Serving, stop: Event, report: Report) -> int:
    """Serve until `stop` is set; return the exit status: 0, 1 if something failed or was left undone, 2 for usage."""
    try:
        return _serve(serving, stop, report)
    except (UsageError, UnknownSchemeError, NotInstalledError, NamingError, NameNotFoundError) as error:
        click.echo(f"Error: {error}", err=True)
        return USAGE
    except (BrokerError, StoreError) as error:
        click.echo(f"Error: {error}", err=True)
        return FAILED


def _serve(serving: Serving, stop: Event, report: Report) -> int:
    service = (
        find_service(serving.target) if serving.wsgi_path is None else find_wsgi(serving.target, serving.wsgi_path)
    )
    place, profile = _place(serving, service)
    names = _names(serving.names)
    with ExitStack() as stack:
        connection = open_url(serving.connection, DEFAULT_TIMEOUT)
        stack.callback(connection.close, LEAVE_TIMEOUT)
        store = _store(serving)
        if store is not None:
            stack.enter_context(store)
        dispatcher = Dispatcher(
            connection,
            place,
            service,
            workers=serving.workers,
            prefetch=serving.prefetch,
            transactional=serving.transactions,
            store=store,
            max_deliveries=serving.max_deliveries,
            stalled_after=serving.stalled_after,
            dead_letters=serving.dead_letters,
            reply_topics=serving.reply_topic,
            reply_queues=serving.reply_queue or True,
            durable=serving.durable,
            verify=None if serving.verify is None else find(serving.verify, "function"),
            middleware=[find(each, "middleware") for each in serving.middleware],
            profile=profile,
            properties=serving.properties,
            names=names,
            observer=_observers(serving),
        ).start()
        where, broker, pid = f"{dispatcher.destination}", connection.capabilities.broker, os.getpid()
        announce(
            f"serving {where} at {broker}, process {pid}",
            {"serving": where, "broker": broker, "process": pid} if serving.as_json else None,
        )
        is_well = _watch(dispatcher, stop, report)
        is_finished = dispatcher.close(serving.grace)
    if not is_finished:
        log.error("not all was finished within %g s; the broker delivers the rest again", serving.grace)
    log.info("served: %s", ", ".join(f"{count} {what}" for what, count in sorted(dispatcher.counts.items())) or "none")
    return 0 if is_well and is_finished else FAILED


def _store(serving: Serving) -> SqliteStore | None:
    if not serving.store:
        return None
    return SqliteStore(serving.store, lease=serving.lease, transaction_timeout=serving.transaction_timeout)


def _observers(serving: Serving) -> list[Observer]:
    """Return those that were asked for; the service's module has been imported, and may have set up its tracing."""
    wanted = (serving.metrics, "soapjms.prometheus", "Metrics"), (serving.traces, "soapjms.opentelemetry", "Traces")
    return [library(module).__dict__[name]() for is_wanted, module, name in wanted if is_wanted]


def _watch(dispatcher: Dispatcher, stop: Event, report: Report) -> bool:
    """Report how the dispatcher is until `stop` is set; False if it ended before."""
    while not stop.is_set():
        try:
            health = dispatcher.health(PING_TIMEOUT)
            report(health)
            if not health.live:
                log.error("nothing can be served any more: %s", health.problem)
                return False
            stop.wait(BEAT)
        except MemoryError:  # nothing can be told this time
            sleep(BEAT)
    return True


def find_service(target: str) -> Operations:
    """Import a service: `MODULE:NAME`, from the current folder too.

    Raises:
        UsageError: there is no such module or name, it cannot be imported, or it is no service.
    """
    module, name = _module_of(target, "bank.service:service")
    found = getattr(module, name, None)
    if not isinstance(found, Operations):
        there = ", ".join(
            f"{module.__name__}:{each}" for each, it in vars(module).items() if isinstance(it, Operations)
        )
        raise UsageError(f"{target} is no soapjms.Service; the module has: {there or 'none'}")
    return found


def find_wsgi(target: str, path: str) -> Operations:
    """Import a WSGI application, `MODULE:NAME`, from the current folder too, and make a service of it.

    Raises:
        UsageError: see `find_service`.
    """
    module, name = _module_of(target, "bank.soap:application")
    if not hasattr(module, name):
        there = ", ".join(each for each, it in vars(module).items() if callable(it) and not isinstance(it, type))
        raise UsageError(f"{module.__name__} has no {name!r}; of what can be called it has: {there or 'nothing'}")
    return WsgiService(getattr(module, name), path=path)


def find(target: str, what: str) -> Any:
    """Import something else that a service is served with, which may be within something: `MODULE:NAME.NAME`.

    Raises:
        UsageError: there is no such module or name, or it cannot be imported.
    """
    module, name = _module_of(target, "bank.service:audit")
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        raise UsageError(f"the {what} {target} is not there: {error}") from None


def _module_of(target: str, example: str) -> tuple[ModuleType, str]:
    """Import the module of `MODULE:NAME`, and return it with the name."""
    module_name, colon, name = target.partition(":")
    if not module_name or not colon or not name:
        raise UsageError(f"{target!r} is not MODULE:NAME, such as {example}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module_name), name
    except (Exception, SystemExit) as error:  # a module may end the program while it is imported
        is_absent = isinstance(error, ModuleNotFoundError) and error.name in (
            module_name,
            module_name.partition(".")[0],
        )
        log.debug("the module %s cannot be imported", module_name, exc_info=error)
        said = f"{error}" if is_absent else told(error)
        raise UsageError(f"the module {module_name} cannot be imported: {said}") from error


def _place(serving: Serving, service: Operations) -> tuple[str | Port, Profile | str]:
    """Return where requests come to, and the profile: the one given, else the WSDL's, else the default.

    Raises:
        UsageError: nothing says where; the WSDL cannot be read.
    """
    if serving.uri is not None:
        return serving.uri, serving.profile or DEFAULT_PROFILE
    try:
        port = service.port if serving.wsdl is None else read_wsdl(serving.wsdl).port(serving.port)
    except OSError as error:
        raise UsageError(f"the WSDL cannot be read: {error}") from error
    if port is None:
        raise UsageError(
            "give either --uri or --wsdl; only a service that was made from a WSDL says where it is served"
        )
    return port, serving.profile or port.profile or DEFAULT_PROFILE


def _names(path: str | None) -> Names | None:
    try:
        return read_names(path)
    except OSError as error:
        raise UsageError(f"the JNDI names cannot be read: {error}") from error


class OneLine(logging.Formatter):
    """Says in the line itself what an error was and where it came from, in the place of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record without its traceback."""
        if not record.exc_info or record.exc_info[1] is None:
            return super().format(record)
        plain = copy(record)
        plain.exc_info = plain.exc_text = None
        return f"{super().format(plain)}: {told(record.exc_info[1])}; --log-level DEBUG shows how it came there"


def told(error: BaseException) -> str:
    """Say what an error is and where it was raised, in one line: in the user's program, if that took part."""
    frames = list(extract_tb(error.__traceback__))
    theirs = [each for each in frames if not each.filename.startswith(NOT_THE_USERS)]
    frames = [] if isinstance(error, SyntaxError) and not theirs else theirs or frames  # it says itself where it is
    where = f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {visible(str(error))}{where}"


def log_to_terminal(level: str, *, debug: bool = False) -> None:
    """Write the log to standard error, unless the service's module does something else about it.

    Tracebacks are for those who ask for the level DEBUG. With `debug` our own log is there already: see `show_debug`.
    """
    form = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(form) if level == "DEBUG" else OneLine(form))
    if debug:
        handler.addFilter(lambda record: record.name.partition(".")[0] not in OUR_LOGS)
    logging.basicConfig(level=level, handlers=[handler])
