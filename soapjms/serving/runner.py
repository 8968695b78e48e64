"""Serving in this process: import what the options name, and serve it until told to stop.

Several processes, and the status pages, are in `supervisor.py`. Terminal output belongs in `soapjms.cli`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from threading import Event
from time import sleep
from traceback import extract_tb
from types import FrameType, ModuleType
from typing import Any, Final, TypeAlias

import brokers
import soapjms
from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.arguments import at_least_one, finite, items, not_negative, switch
from brokers.connection import DEFAULT_TIMEOUT, Connection
from brokers.errors import NotInstalledError, UnknownSchemeError
from brokers.naming import NameNotFoundError, Names, NamingError
from brokers.threads.thread import Thread, future_of
from soapjms import events
from soapjms.bridge.wsgi import WsgiService
from soapjms.destinations import connect_url
from soapjms.observing import Health, Observer
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, Profile, ProfileName
from soapjms.protocol.text import reason_of, with_article
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Port
from soapjms.security import Verify
from soapjms.service.dispatcher import Dispatcher
from soapjms.service.operations import Middleware, Operations
from soapjms.service.store.sqlite import SqliteStore
from soapjms.serving.status_page import START_TIMEOUT, library
from soapjms.wsdl import read_wsdl

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end what is served; the last one comes when the terminal is closed."""

OVER: Final = b"\0"
"""Tells the listener to end; no signal has that number."""


@contextmanager
def ending(stop: Event) -> Iterator[None]:
    """Set `stop` at SIGTERM, SIGINT and SIGHUP. A second SIGINT raises KeyboardInterrupt, for users who do not want to
    wait. SIGHUP that is ignored, as by `nohup`, stays so.

    Another thread sets it, and learns of the signal from the interpreter itself, over a socket. The main thread may be
    within `stop.wait()`: if it holds the lock that `set` needs, a handler would deadlock; and the main thread does not
    wake for a signal that reaches another thread, as after SIGSTOP, so no Python handler would be called.
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
    caught = [each for each in SIGNALS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, note) for each in caught}
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


NOT_THE_USERS: Final = (
    *(str(Path(each).parent) for each in (brokers.__file__, soapjms.__file__, importlib.__file__)),
    "<",
)
"""Prefixes of the names of files that are not the user's own."""

REPORT_SECONDS: Final = 1.0
"""Seconds between two health reports."""

CONNECT_POLL_SECONDS: Final = 0.2
"""Interval, in seconds, at which connecting to the broker looks whether serving is to end."""

PING_TIMEOUT: Final = 2.0
LEAVE_TIMEOUT: Final = 1.0

Report: TypeAlias = Callable[[Health], None]
"""Called once a second with the current health."""

Announce: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Called with what can be reached now, and where: as text for people, and as a mapping for programs."""


def log_announcement(text: str, members: Mapping[str, Any]) -> None:
    """Log an announcement's text."""
    events.SERVE_NOTE.log(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What is served, and how; the options are those of `soapjms serve`. Picklable if the target is MODULE:NAME.

    Attributes:
        target: a service, or MODULE:NAME of one; modules in the current folder are found too.
        connection: URL of the broker; it may hold a password, so it is not in the repr.
        wsgi_path: treat the target as a WSGI application, MODULE:NAME, that answers at this path.
        uri: the jms: URI that requests come to. Without `uri` and `wsdl`, the port of the service's own WSDL is used.
        wsdl: a WSDL file whose port says where requests come to.
        port: name of the WSDL's port, or SERVICE/PORT; None for the only SOAP/JMS port.
        allow: folders that imports of the WSDL may be read from, beside its own; by default none.
        processes: number of processes that serve as competing consumers; each of several imports the target. Default 1.
        workers: number of requests that each process works on at a time; default 4.
        prefetch: number of requests that the broker may hand to a worker before the first is accepted; default 1.
        transactions: accept a request and send its answer in one transaction, if the broker supports that; by default
            yes.
        store: a file that remembers finished requests, for all processes of this machine; None for no store.
        lease: with a store, seconds without a sign of life after which a process counts as dead; default 5.
        transaction_timeout: with a store, seconds after which the `request.transaction` of a function is rolled back;
            default 30.
        max_deliveries: number of deliveries after which an unfinished request becomes a dead letter; default 6.
        stalled_after: seconds after which the service is not ready if all workers are busy and none has finished a
            request; default 60.
        dead_letters: queue for dead letters; None for the broker's own.
        reply_topic: names of the topics that answers may go to; by default none.
        reply_queue: names of the queues that answers may go to; empty, the default, for any.
        durable: name of a durable subscription to the served topic, which needs a client id in the URL and one process;
            None for none.
        middleware: functions, or MODULE:NAME of each, the outermost first.
        verify: a function that identifies the sender of a request, or its MODULE:NAME.
        profile: name of the specification's edition; None for that of the WSDL's port, else the default profile.
        names: file of JNDI names: jndi.properties, or TOML.
        properties: binding properties by name, which override those of the URI and the WSDL; by default none.
        grace: seconds to finish requests that are under way when serving ends; default 30.
        health: HOST:PORT to listen at for GET /live and /ready; port 0 for any free one, None for no page.
        metrics: HOST:PORT to listen at for Prometheus's GET /metrics; may be the same as `health`, None for no page.
        start_timeout: seconds after which one of several processes that does not serve yet counts as hung; default 120.
        traces: trace requests with OpenTelemetry, which the target's module sets up; by default no.

    Raises:
        UsageError: an option has another type or is out of range, or cannot be given to several processes.
    """

    target: str | Operations
    connection: str = field(repr=False)
    wsgi_path: str | None = None
    uri: str | None = None
    wsdl: str | None = None
    port: str | None = None
    allow: tuple[str, ...] = ()
    processes: int = 1
    workers: int = 4
    prefetch: int = 1
    transactions: bool = True
    store: str | None = None
    lease: float = 5.0
    transaction_timeout: float = 30.0
    max_deliveries: int = MAX_DELIVERIES
    stalled_after: float = 60.0
    dead_letters: str | None = None
    reply_topic: tuple[str, ...] = ()
    reply_queue: tuple[str, ...] = ()
    durable: str | None = None
    middleware: tuple[str | Middleware, ...] = ()
    verify: str | Verify | None = None
    profile: ProfileName | None = None
    names: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    grace: float = 30.0
    health: str | None = None
    metrics: str | None = None
    start_timeout: float = START_TIMEOUT
    traces: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.target, str | Operations):
            raise UsageError(f"target must be a soapjms.Service, or MODULE:NAME of one, got {self.target!r}")
        if not isinstance(self.connection, str):
            raise UsageError(f"connection must be the URL of the broker, got {with_article(type(self.connection))}")
        for name in ("processes", "workers", "prefetch", "max_deliveries"):
            at_least_one(getattr(self, name), name)
        for name in ("lease", "transaction_timeout", "stalled_after", "start_timeout"):
            finite(getattr(self, name), name)
        not_negative(self.grace, "grace")
        for name in ("transactions", "traces"):
            switch(getattr(self, name), name)
        for name in ("allow", "reply_topic", "reply_queue", "middleware"):
            object.__setattr__(self, name, items(getattr(self, name), name, "a tuple or list", object))
        if self.processes > 1:
            self._check_for_several()

    def _check_for_several(self) -> None:
        """Check that another process can be given the options."""
        if not isinstance(self.target, str):
            raise UsageError(
                f"target must be MODULE:NAME for several processes, each of which imports it, got {self.target!r}"
            )
        for name, given in [("verify", self.verify), *(("middleware", each) for each in self.middleware)]:
            try:
                pickle.dumps(given)
            except Exception as error:  # whatever the object's own functions raise
                raise UsageError(
                    f"{name} must be MODULE:NAME, or a function that can be imported, for several processes, got "
                    f"{given!r}: {error}"
                ) from error


def run(options: ServeOptions, stop: Event, report: Report, announce: Announce = log_announcement) -> bool:
    """Serve in this process until `stop` is set.

    Returns:
        True if all went well; False if serving could not go on, or requests were left unfinished.

    Raises:
        UsageError: the options are wrong; trying again cannot help.
        BrokerError, StoreError: the broker or the store cannot be reached.
    """
    try:
        return _run(options, stop, report, announce)
    except (UnknownSchemeError, NotInstalledError, NamingError, NameNotFoundError) as error:
        raise UsageError(f"{error}") from error


def _run(options: ServeOptions, stop: Event, report: Report, announce: Announce) -> bool:
    service = _service(options)
    place, profile = _place(options, service)
    names = _names(options.names)
    with ExitStack() as stack:
        connection = _connection(options.connection, stop)
        if connection is None:
            return True
        stack.callback(connection.close, LEAVE_TIMEOUT)
        store = _store(options)
        if store is not None:
            stack.enter_context(store)
        dispatcher = Dispatcher(
            connection,
            place,
            service,
            workers=options.workers,
            prefetch=options.prefetch,
            transactional=options.transactions,
            store=store,
            max_deliveries=options.max_deliveries,
            stalled_after=options.stalled_after,
            dead_letters=options.dead_letters,
            reply_topics=options.reply_topic,
            reply_queues=options.reply_queue or True,
            durable=options.durable,
            verify=None if options.verify is None else find(options.verify, "function"),
            middleware=[find(each, "middleware") for each in options.middleware],
            profile=profile,
            properties=options.properties,
            names=names,
            observer=_observers(options),
        ).start()
        where, broker, pid = f"{dispatcher.destination}", connection.capabilities.broker, os.getpid()
        announce(f"serving {where} at {broker}, process {pid}", {"serving": where, "broker": broker, "process": pid})
        dead = watch(partial(dispatcher.health, PING_TIMEOUT), stop, report)
        if dead is not None:
            events.SERVE_DEAD.log(dead.problem)
        is_finished = dispatcher.close(options.grace)
    if not is_finished:
        events.SERVE_GRACE_OVER.log(options.grace)
    events.SERVE_ENDED.log(", ".join(f"{count} {what}" for what, count in sorted(dispatcher.counts.items())) or "none")
    return dead is None and is_finished


def _connection(url: str, stop: Event) -> Connection | None:
    """Connect to the broker; return None if `stop` was set before it answered. What comes later is closed."""
    attempt = future_of(partial(connect_url, url, DEFAULT_TIMEOUT), "soapjms-connect")
    while not stop.is_set():
        if wait([attempt], CONNECT_POLL_SECONDS).done:
            return attempt.result()
    attempt.add_done_callback(_close_late)
    return None


def _close_late(attempt: Future[Connection]) -> None:
    if attempt.exception() is None:
        attempt.result().close(LEAVE_TIMEOUT)


def _service(options: ServeOptions) -> Operations:
    if isinstance(options.target, Operations):
        return options.target
    return find_service(options.target) if options.wsgi_path is None else find_wsgi(options.target, options.wsgi_path)


def _store(options: ServeOptions) -> SqliteStore | None:
    if not options.store:
        return None
    return SqliteStore(options.store, lease=options.lease, transaction_timeout=options.transaction_timeout)


def _observers(options: ServeOptions) -> list[Observer]:
    """Return the requested observers. The service's module has been imported before, and may have set up tracing."""
    found: list[Observer] = []
    if options.metrics is not None:
        found.append(library("soapjms.prometheus").Metrics())
    if options.traces:
        found.append(library("soapjms.opentelemetry").Traces())
    return found


def watch(look: Callable[[], Health], stop: Event, report: Report) -> Health | None:
    """Report health once a second until `stop` is set; return the health if it is no longer live, else None.

    Args:
        look: returns the health, as `Dispatcher.health` does.
        stop: ends the loop when it is set.
        report: called with the health.
    """
    while not stop.is_set():
        try:
            health = look()
            report(health)
            if not health.live:
                return health
            stop.wait(REPORT_SECONDS)
        except MemoryError:  # no report this time
            sleep(REPORT_SECONDS)
    return None


def find_service(target: str) -> Operations:
    """Import the service at `MODULE:NAME`; modules in the current folder are found too.

    Raises:
        UsageError: there is no such module or name, it cannot be imported, or it is not a service.
    """
    module, name = _module_of(target, "bank.service:service")
    found = getattr(module, name, None)
    if not isinstance(found, Operations):
        there = ", ".join(
            f"{module.__name__}:{each}" for each, it in vars(module).items() if isinstance(it, Operations)
        )
        raise UsageError(f"target must be a soapjms.Service, got {target}; {_file_of(module)} has: {there or 'none'}")
    return found


def find_wsgi(target: str, path: str) -> Operations:
    """Import the WSGI application at `MODULE:NAME`, and make a service of it; the current folder is searched too.

    Raises:
        UsageError: see `find_service`.
    """
    module, name = _module_of(target, "bank.soap:application")
    if not hasattr(module, name):
        there = ", ".join(each for each, it in vars(module).items() if callable(it) and not isinstance(it, type))
        raise UsageError(f"{_file_of(module)} has no {name!r}; its callables are: {there or 'none'}")
    return WsgiService(getattr(module, name), path=path)


def _file_of(module: ModuleType) -> str:
    """Return the file of a module, as another one of its name may be meant; for a module without a file, its name."""
    return getattr(module, "__file__", None) or f"the module {module.__name__}"


def find(target: Any, what: str) -> Any:
    """Import another part of a service at `MODULE:NAME`, or at `MODULE:NAME.NAME` for an attribute.

    A target that is not a string is returned as it is; `what` names the part in errors.

    Raises:
        UsageError: there is no such module or name, or it cannot be imported.
    """
    if not isinstance(target, str):
        return target
    module, name = _module_of(target, "bank.service:audit")
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        raise UsageError(f"the {what} {target} does not exist: {error}") from None


def _module_of(target: str, example: str) -> tuple[ModuleType, str]:
    """Import the module of `MODULE:NAME`, and return it with the name."""
    module_name, colon, name = target.partition(":")
    if not module_name or not colon or not name:
        raise UsageError(f"a name to import must be MODULE:NAME, such as {example}, got {target!r}")
    if module_name.endswith(".py"):
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise UsageError(f"a name to import must be MODULE:NAME, got {target!r}; write {meant}:{name}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name), name
    except (Exception, SystemExit) as error:  # a module may end the program while it is imported
        is_absent = isinstance(error, ModuleNotFoundError) and error.name in (
            module_name,
            module_name.partition(".")[0],
        )
        events.SERVE_MODULE_MISSING.log(module_name, exc_info=error)
        said = f"{error}" if is_absent else in_one_line(error)
        raise UsageError(f"the module {module_name} cannot be imported: {said}") from error


def _place(options: ServeOptions, service: Operations) -> tuple[str | Port, Profile | ProfileName]:
    """Return where requests come to, and the profile: the one given, else the WSDL's, else the default.

    Raises:
        UsageError: no option says where, or the WSDL cannot be read.
    """
    if options.uri is not None:
        return options.uri, options.profile or DEFAULT_PROFILE
    try:
        described = None if options.wsdl is None else read_wsdl(options.wsdl, allow=options.allow)
        port = service.port if described is None else described.port(options.port, option="--port SERVICE/PORT")
    except OSError as error:
        raise UsageError(f"the WSDL {options.wsdl} cannot be read: {reason_of(error)}") from error
    if port is None:
        raise UsageError(
            "give either --uri or --wsdl; only a service that was made from a WSDL has an address of its own"
        )
    return port, options.profile or port.profile or DEFAULT_PROFILE


def _names(path: str | None) -> Names | None:
    try:
        return None if path is None else Names.from_file(path)
    except OSError as error:
        raise UsageError(f"the JNDI names in {path} cannot be read: {reason_of(error)}") from error


def in_one_line(error: BaseException) -> str:
    """Describe an error and where it was raised in one line: the place in the user's program, if there is one."""
    frames = list(extract_tb(error.__traceback__))
    theirs = [each for each in frames if not each.filename.startswith(NOT_THE_USERS)]
    frames = [] if isinstance(error, SyntaxError) and not theirs else theirs or frames  # its text has the place
    where = f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {visible(str(error))}{where}"
