"""The log events of this package. docs/logging.md lists them; their names are stable."""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING
from typing import Final

from brokers.events.log_event import LogEvent

ANSWER_DEAD_LETTER_FAILED: Final = LogEvent(
    "answer.dead_letter_failed",
    "soapjms.dispatcher",
    WARNING,
    "the answer for a dead letter could not be sent: %(error)s",
    "The client of a dead letter times out.",
)
ANSWER_REPEATED: Final = LogEvent(
    "answer.repeated",
    "soapjms.dispatcher",
    INFO,
    "an answer is sent again, as its client may be back soon: %(error)s",
    "The client was gone; its answer is tried again.",
)
ANSWER_UNDELIVERED: Final = LogEvent(
    "answer.undelivered",
    "soapjms.dispatcher",
    WARNING,
    "the answer to request %(message_id)s was not delivered: %(error)s",
    "The request was carried out; its client has no answer.",
    more=("correlation_id", "destination"),
)
ANSWER_UNREAD_FAILED: Final = LogEvent(
    "answer.unread_failed",
    "soapjms.dispatcher",
    WARNING,
    "the sender of a request that was not read could not be told: %(error)s",
    "The sender of an unreadable request times out.",
)
ANSWER_UNSENDABLE: Final = LogEvent(
    "answer.unsendable",
    "soapjms.dispatcher",
    ERROR,
    "an answer, its attachments or its properties cannot be sent",
    "The function's answer cannot be written; the client gets a fault.",
    traceback=True,
)
ANSWERS_NOT_DELIVERED: Final = LogEvent(
    "answers.not_delivered",
    "soapjms.dispatcher",
    WARNING,
    "%(count)d answers wait for clients that were gone, and are not delivered: the dispatcher closes",
    "The clients had gone and did not come back in time.",
)
BRIDGE_CLIENT_SLOW: Final = LogEvent(
    "bridge.client_slow",
    "soapjms.bridge",
    INFO,
    "the client %(client)s did not take its answer of %(size)d octets; giving up",
    "A client did not read its answer in time.",
)
BRIDGE_REQUEST_FAILED: Final = LogEvent(
    "bridge.request_failed",
    "soapjms.bridge",
    ERROR,
    "a request could not be bridged",
    "A request over HTTP failed by an error of the bridge; please report it.",
    traceback=True,
)
BRIDGE_REQUEST_MALFORMED: Final = LogEvent(
    "bridge.request_malformed",
    "soapjms.bridge",
    INFO,
    "refused a malformed request: %(error)s",
    "A client sent something that is not HTTP.",
)
BRIDGE_REQUEST_REFUSED: Final = LogEvent(
    "bridge.request_refused",
    "soapjms.bridge",
    INFO,
    "refused with %(status)d: %(error)s",
    "A request over HTTP was answered with an error status.",
)
BRIDGE_WSGI_ERROR: Final = LogEvent(
    "bridge.wsgi_error",
    "soapjms.bridge",
    ERROR,
    "the WSGI application reports: %(error)s",
    "The WSGI application wrote to its error stream.",
)
CALL_FAILED_INTERNALLY: Final = LogEvent(
    "call.failed_internally",
    "soapjms.calls",
    ERROR,
    "a call ended in an internal error",
    "A call failed by an error of the client; please report it.",
    traceback=True,
)
CAPTURE_FILE_OVER_LIMIT: Final = LogEvent(
    "capture.file_over_limit",
    "soapjms.capturelog",
    WARNING,
    "%(path)s grows beyond its limit, as no other file can be begun: %(error)s",
    "Make room, or check the permissions of the folder.",
)
CAPTURE_MESSAGE_NOT_RECORDED: Final = LogEvent(
    "capture.message_not_recorded",
    "soapjms.recorder",
    WARNING,
    "%(subject)s not recorded in %(path)s: %(error)r",
    "The message was sent or received, but is not in the file.",
)
CAPTURE_MESSAGES_LOST: Final = LogEvent(
    "capture.messages_lost",
    "soapjms.capture",
    WARNING,
    "%(count)d messages could not be written to %(path)s: %(error)s",
    "The messages are not in the files.",
)
CAPTURE_PARTIAL_WRITE_LEFT: Final = LogEvent(
    "capture.partial_write_left",
    "soapjms.capturelog",
    WARNING,
    "a partial write to %(path)s could not be removed: %(error)s",
    "The file may end in half a line; readers skip it.",
)
CAPTURE_RECORDER_FAILED: Final = LogEvent(
    "capture.recorder_failed",
    "soapjms.recorder",
    ERROR,
    "the recorder failed; the message goes on",
    "The recorder failed by an error of its own; the message is not affected.",
    traceback=True,
)
CAPTURE_TAP_FAILED: Final = LogEvent(
    "capture.tap_failed",
    "soapjms.capture",
    ERROR,
    "a message could not be recorded",
    "One message is missing in the files.",
    traceback=True,
)
CAPTURE_UNMASKED: Final = LogEvent(
    "capture.unmasked",
    "soapjms.recorder",
    INFO,
    "%(path)s holds passwords and other secrets unmasked: mask=None hides nothing",
    "The file holds secrets as they were sent; guard it.",
)
CAPTURE_WRITE_FAILED: Final = LogEvent(
    "capture.write_failed",
    "soapjms.capture",
    WARNING,
    (
        "nothing can be written to %(path)s; messages wait in memory, and are dropped once that is full; "
        "writing is tried again every %(seconds)g s: %(error)s"
    ),
    "Make room, or check the permissions of the folder.",
)
CAPTURE_WRITE_RESTORED: Final = LogEvent(
    "capture.write_restored",
    "soapjms.capture",
    WARNING,
    "%(path)s can be written to again; %(count)d messages were dropped",
    "Writing works again.",
)
CLOCK_SKEWED: Final = LogEvent(
    "clock.skewed",
    "soapjms.clock",
    WARNING,
    "%(skew)s: times of expiry are written and read by the broker's clock; synchronise the clocks",
    "Synchronise the clocks, else requests expire too early or too late.",
)
CLOCK_UNKNOWN: Final = LogEvent(
    "clock.unknown",
    "soapjms.clock",
    INFO,
    "the broker's clock could not be compared with this machine's: %(error)s",
    "Expiry goes by the last comparison, else by the clock of this machine; a minute later they are compared again.",
)
DISPATCHER_CLOSED: Final = LogEvent(
    "dispatcher.closed",
    "soapjms.dispatcher",
    ERROR,
    "the connection was closed: no more requests come from %(destination)s",
    "The dispatcher serves no more; start it again.",
)
DISPATCHER_WITHOUT_LOOP: Final = LogEvent(
    "dispatcher.without_loop",
    "soapjms.dispatcher",
    ERROR,
    "the program's event loop has ended: no more requests are taken from %(destination)s",
    "The dispatcher was not closed before; `async with` does it. The broker delivers its open requests again.",
)
DISPATCHER_SHUTDOWN: Final = LogEvent(
    "dispatcher.shutdown",
    "soapjms.dispatcher",
    ERROR,
    "the program is ending: no more requests are taken from %(destination)s",
    "The dispatcher was not closed before; `with` does it. A function failed, as Python's executors take no more work; "
    "the broker delivers its request again.",
)
DISPATCHER_LOST: Final = LogEvent(
    "dispatcher.lost",
    "soapjms.dispatcher",
    WARNING,
    "the connection was lost: no requests come from %(destination)s until it is restored",
    "The connection is being restored.",
)
DISPATCHER_RESTORED: Final = LogEvent(
    "dispatcher.restored",
    "soapjms.dispatcher",
    INFO,
    "requests come from %(destination)s again",
    "The connection is restored.",
)
DISPATCHER_SUBSCRIPTIONS_LOST: Final = LogEvent(
    "dispatcher.subscriptions_lost",
    "soapjms.dispatcher",
    ERROR,
    "%(live)d of %(wanted)d subscriptions to %(destination)s are left: %(error)s",
    "Fewer requests run at a time until it is restored.",
)
DISPATCHER_SUBSCRIPTIONS_RESTORED: Final = LogEvent(
    "dispatcher.subscriptions_restored",
    "soapjms.dispatcher",
    WARNING,
    "%(live)d of %(wanted)d subscriptions to %(destination)s are restored",
    "Requests come again.",
)
FAULT_DETAIL_LEFT_OUT: Final = LogEvent(
    "fault.detail_left_out",
    "soapjms.service",
    ERROR,
    "the detail of a fault must be an element, got %(detail)r; it is left out",
    "Give an lxml element as the detail of a fault.",
)
MESSAGE_REFUSED: Final = LogEvent(
    "message.refused",
    "soapjms.dispatcher",
    WARNING,
    "a one-way message was refused: %(error)r (%(subcode)s)",
    "A one-way message broke a rule; its sender is told nothing.",
    more=("correlation_id", "destination"),
)
OBSERVER_FAILED: Final = LogEvent(
    "observer.failed",
    "soapjms.observing",
    ERROR,
    ("the observer %(observer)s failed in %(place)s; nothing else did; later failures are logged as DEBUG"),
    "An observer raised an error; calls and requests are not affected.",
    traceback=True,
)
OBSERVER_FAILED_AGAIN: Final = LogEvent(
    "observer.failed_again",
    "soapjms.observing",
    DEBUG,
    "the observer %(observer)s failed again in %(place)s",
    "As `observer.failed`, for later failures.",
    traceback=True,
)
OPERATION_EXPIRED: Final = LogEvent(
    "operation.expired",
    "soapjms.service",
    WARNING,
    (
        "the function for %(operation)s was cancelled, since its request from %(destination)s, JMSCorrelationID "
        "%(correlation_id)r, had expired"
    ),
    "The caller has stopped waiting; a longer timeout, or `expires=`, leaves the function more time.",
)
LOOP_STOPPED: Final = LogEvent(
    "operation.loop_stopped",
    "soapjms.service",
    ERROR,
    "something stopped the event loop of async functions, which goes on",
    "A function called `loop.stop`, or a task or callback that it left raised SystemExit; the traceback names it.",
    traceback=True,
)
FUNCTIONS_LEFT: Final = LogEvent(
    "operation.not_ended",
    "soapjms.service",
    WARNING,
    "%(functions)d async functions were cancelled and have not ended yet",
    "Their clean-up takes long; their requests are delivered again.",
)
OPERATION_FAILED: Final = LogEvent(
    "operation.failed",
    "soapjms.service",
    ERROR,
    (
        "the function for %(operation)s failed; its request came from %(destination)s, JMSCorrelationID "
        "%(correlation_id)r"
    ),
    "The function raised an error; the traceback has its frames, and the client gets a fault.",
    traceback=True,
)
OPERATION_ONE_WAY_FAULT: Final = LogEvent(
    "operation.one_way_fault",
    "soapjms.service",
    WARNING,
    "a one-way message is answered with a fault, which goes to nobody: %(error)s",
    "The sender of a one-way message is told nothing.",
)
PAGE_FAILED: Final = LogEvent(
    "page.failed",
    "soapjms.serve",
    ERROR,
    "the answer at %(path)s could not be made",
    "The status page failed by an internal error.",
    traceback=True,
)
PAGE_REQUEST: Final = LogEvent(
    "page.request",
    "soapjms.serve",
    DEBUG,
    "page: %(request)s",
    "A request for the status page.",
)
PAGE_REQUEST_FAILED: Final = LogEvent(
    "page.request_failed",
    "soapjms.serve",
    DEBUG,
    "a request over HTTP failed",
    "A client of the status page went away.",
    traceback=True,
)
PROCESS_ENDED: Final = LogEvent(
    "process.ended",
    "soapjms.serve",
    ERROR,
    "%(error)s; another starts in %(seconds)g s",
    "A process ended unasked; another starts.",
)
PROCESS_HUNG: Final = LogEvent(
    "process.hung",
    "soapjms.serve",
    ERROR,
    "process %(process_id)s: %(error)s; it is not ended, as it may recover; SIGKILL makes another start",
    "See what the process waits for; SIGKILL makes another start.",
)
PROCESS_KILLED: Final = LogEvent(
    "process.killed",
    "soapjms.serve",
    ERROR,
    "process %(process_id)s did not end, and is killed",
    "The process did not end in time.",
)
PROCESS_NOT_STARTED: Final = LogEvent(
    "process.not_started",
    "soapjms.serve",
    ERROR,
    "no process could be started (%(error)s); trying again in %(seconds)g s",
    "Look at the limits of processes and memory.",
)
REPLAY_PROGRESS_UNKNOWN: Final = LogEvent(
    "replay.progress_unknown",
    "soapjms.replay",
    DEBUG,
    "Spark does not report its progress",
    "The replay goes on without progress.",
    traceback=True,
)
REPLY_UNMATCHED: Final = LogEvent(
    "reply.unmatched",
    "soapjms.client",
    INFO,
    "a reply matches no pending call (%(subject)s): JMSCorrelationID %(correlation_id)r",
    "Usually the reply to a call that had timed out.",
)
REPLY_UNPARSED: Final = LogEvent(
    "reply.unparsed",
    "soapjms.client",
    WARNING,
    "the service answered %(fault)r: %(hint)s",
    "The service could not read the request.",
)
REPLY_UNREAD: Final = LogEvent(
    "reply.unread",
    "soapjms.client",
    WARNING,
    "a reply was not read (%(subject)s), JMSCorrelationID %(correlation_id)r: %(error)s",
    "The reply is dropped; its call, if any, fails or times out.",
)
REQUEST_ADDRESSING_REFUSED: Final = LogEvent(
    "request.addressing_refused",
    "soapjms.dispatcher",
    WARNING,
    "the addressing headers of a request were refused: %(error)r",
    "The client gets a fault of WS-Addressing.",
    more=("correlation_id", "destination"),
)
REQUEST_DEAD_LETTER: Final = LogEvent(
    "request.dead_letter",
    "soapjms.dispatcher",
    ERROR,
    "a request goes to %(dead_letters)s: %(error)s",
    "See why in `error`; the request lies in the queue `dead_letters`.",
    more=("correlation_id", "destination"),
)
REQUEST_DEAD_LETTER_FAILED: Final = LogEvent(
    "request.dead_letter_failed",
    "soapjms.dispatcher",
    ERROR,
    "a dead letter could not be sent to %(dead_letters)s, so it is left to the broker: %(error)s",
    "The broker's own handling of dead letters applies.",
)
REQUEST_EXPIRED: Final = LogEvent(
    "request.expired",
    "soapjms.dispatcher",
    WARNING,
    ("a request was not run, JMSCorrelationID %(correlation_id)r: it had expired %(seconds).1f s before it came here"),
    "The caller had stopped waiting; if there are many, compare the clocks.",
    more=("destination",),
)
REQUEST_NO_MEMORY: Final = LogEvent(
    "request.no_memory",
    "soapjms.dispatcher",
    ERROR,
    "a request of %(size)d octets or characters goes back: %(error)s",
    "The broker delivers the request again.",
)
REQUEST_NOT_GIVEN_BACK: Final = LogEvent(
    "request.not_given_back",
    "soapjms.dispatcher",
    ERROR,
    "a request could not be given back; it goes back with its connection",
    "The broker delivers the request again when the connection ends.",
    traceback=True,
)
REQUEST_REFUSED: Final = LogEvent(
    "request.refused",
    "soapjms.dispatcher",
    INFO,
    "a request was refused: %(error)r (%(subcode)s)",
    "The client gets a fault with this reason.",
    more=("correlation_id", "destination"),
)
REQUEST_REJECTED: Final = LogEvent(
    "request.rejected",
    "soapjms.dispatcher",
    ERROR,
    "a request was rejected: %(error)s",
    "The broker drops the request, or moves it to its own dead-letter queue.",
    more=("correlation_id", "destination"),
)
REQUEST_REPEAT_REFUSED: Final = LogEvent(
    "request.repeat_refused",
    "soapjms.dispatcher",
    WARNING,
    "a request that was finished before came again, and was refused before its stored answer",
    "The client gets the refusal, not the stored answer.",
    more=("correlation_id", "destination"),
)
REQUEST_REPLY_CHANGED: Final = LogEvent(
    "request.reply_changed",
    "soapjms.dispatcher",
    WARNING,
    "a request was repeated with another reply destination, and gets no answer",
    "Somebody may try to read the answer to another's request.",
)
REQUEST_STORE_WAITS: Final = LogEvent(
    "request.store_waits",
    "soapjms.dispatcher",
    ERROR,
    "a request waits, as it could not be stored: %(error)s",
    "The request is tried again.",
)
REQUEST_TOLERATED: Final = LogEvent(
    "request.tolerated",
    "soapjms.dispatcher",
    INFO,
    "a request was accepted that breaks %(assertions)s",
    "The request is served, though it breaks these assertions.",
)
REQUEST_UNREAD: Final = LogEvent(
    "request.unread",
    "soapjms.dispatcher",
    WARNING,
    "a request became a dead letter, JMSCorrelationID %(correlation_id)r: %(error)s",
    "The message could not be read as a request.",
)
REQUESTS_NOT_ACCEPTED: Final = LogEvent(
    "requests.not_accepted",
    "soapjms.dispatcher",
    WARNING,
    "%(count)d requests were not accepted; the broker delivers them again: %(error)s",
    "The broker delivers the requests again.",
)
REQUESTS_SETTLEMENT_FAILED: Final = LogEvent(
    "requests.settlement_failed",
    "soapjms.dispatcher",
    ERROR,
    "requests could not be settled",
    "An internal error; the broker delivers the requests again.",
    traceback=True,
)
SERVE_DEAD: Final = LogEvent(
    "serve.dead",
    "soapjms.serve",
    ERROR,
    "nothing can be served any more: %(error)s",
    "The process ends, and a supervisor starts another.",
)
SERVE_ENDED: Final = LogEvent(
    "serve.ended",
    "soapjms.serve",
    INFO,
    "served: %(counts)s",
    "Counts of the requests, when the server ends.",
)
SERVE_GRACE_OVER: Final = LogEvent(
    "serve.grace_over",
    "soapjms.serve",
    ERROR,
    "not all requests were finished within %(seconds)g s; the broker delivers the rest again",
    "The broker delivers the unfinished requests again.",
)
SERVE_MODULE_MISSING: Final = LogEvent(
    "serve.module_missing",
    "soapjms.serve",
    DEBUG,
    "the module %(module_name)s cannot be imported",
    "The module with the service cannot be imported; the traceback says why.",
)
SERVE_NOTE: Final = LogEvent(
    "serve.note",
    "soapjms.serve",
    INFO,
    "%(note)s",
    "What the server does, such as where it listens.",
)
SERVE_NOTE_UNWRITTEN: Final = LogEvent(
    "serve.note_unwritten",
    "soapjms.serve",
    WARNING,
    "%(note)s; standard output did not take that line: %(error)s",
    "Nobody reads the pipe any more, or the disk is full. Serving goes on.",
)
SERVICE_INCOMPLETE: Final = LogEvent(
    "service.incomplete",
    "soapjms.dispatcher",
    WARNING,
    "the service at %(destination)s has no function for these operations of its WSDL: %(missing)s",
    "Requests for these operations are answered with a fault: register a function for each with `@service.operation`.",
)
STORE_CLAIM_KEPT: Final = LogEvent(
    "store.claim_kept",
    "soapjms.store",
    WARNING,
    "the claim on a request could not be released: %(error)s",
    "The request waits until the claim runs out.",
)
STORE_CLOSE_UNTOLD: Final = LogEvent(
    "store.close_untold",
    "soapjms.store",
    WARNING,
    "%(path)s: the other processes could not be told that it was closed: %(error)s",
    "Other processes wait until its signs of life are too old.",
)
STORE_CLOSE_WAITS: Final = LogEvent(
    "store.close_waits",
    "soapjms.store",
    WARNING,
    "%(path)s: closed while somebody writes; the file is closed when that ends",
    "The file is closed when the writer ends.",
)
STORE_DELIVERY_MISCOUNTED: Final = LogEvent(
    "store.delivery_miscounted",
    "soapjms.store",
    WARNING,
    "a delivery that went well counts as a failed one: %(error)s",
    "The request may count as poisonous earlier.",
)
STORE_EFFECTS_FAILED: Final = LogEvent(
    "store.effects_failed",
    "soapjms.store",
    ERROR,
    "%(path)s: %(error)s",
    "The transaction is rolled back.",
)
STORE_EFFECTS_TIMEOUT: Final = LogEvent(
    "store.effects_timeout",
    "soapjms.store",
    ERROR,
    "%(holder)s for too long: it is rolled back",
    "A transaction took too long; keep it short.",
)
STORE_MARK_WAITS: Final = LogEvent(
    "store.mark_waits",
    "soapjms.store",
    DEBUG,
    "the first file cannot be written now: %(error)s",
    "The first file is written later.",
)
STORE_NETWORK_FILE: Final = LogEvent(
    "store.network_file",
    "soapjms.store",
    WARNING,
    (
        "%(path)s is on a network file system (%(filesystem)s), where SQLite does not lock out other "
        "machines: with several of them the file may be damaged, and requests run twice. Use a local "
        "disk"
    ),
    "Use a local disk.",
)
STORE_ONE_MACHINE: Final = LogEvent(
    "store.one_machine",
    "soapjms.dispatcher",
    WARNING,
    (
        "the store %(path)s is for the processes of this machine, and the broker is on another: if other "
        "machines serve the same queue, a request that was finished here but not accepted at the broker "
        "runs again there"
    ),
    "Serve the queue from one machine only, or share the store.",
)
STORE_REQUEST_WAITS: Final = LogEvent(
    "store.request_waits",
    "soapjms.store",
    WARNING,
    "a request waits: %(holder)s",
    "Another writer holds the file.",
)
STORE_SIGN_FAILED: Final = LogEvent(
    "store.sign_failed",
    "soapjms.store",
    WARNING,
    "no sign of life could be given: %(error)s",
    "If that lasts, other processes take over its requests.",
)
STORE_SWEEP_WAITS: Final = LogEvent(
    "store.sweep_waits",
    "soapjms.store",
    INFO,
    "not all entries that are too old or too many can be removed now: %(error)s",
    "Old entries are removed later.",
)
STORE_TRANSACTION_FAILED: Final = LogEvent(
    "store.transaction_failed",
    "soapjms.store",
    ERROR,
    "%(path)s: a transaction could not be ended",
    "An internal error; the transaction ends with the process.",
    traceback=True,
)
STORE_UPKEEP_FAILED: Final = LogEvent(
    "store.upkeep_failed",
    "soapjms.store",
    ERROR,
    "%(path)s: looking after the file failed",
    "An internal error; it is tried again.",
    traceback=True,
)

EVENTS: Final = tuple(each for each in globals().values() if isinstance(each, LogEvent))
"""All events of this package."""
