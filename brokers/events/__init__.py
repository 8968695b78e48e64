"""The log events of this package. docs/logging.md lists them; their names are stable."""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING
from typing import Final

from brokers.events.log_event import LogEvent

AMQP_CLOSED_WITH_REFUSED: Final = LogEvent(
    "amqp.closed_with_refused",
    "brokers.amqp.connection",
    DEBUG,
    "%(connection)s was closed before refused messages could be sent elsewhere",
    "Refused messages could not be sent elsewhere; their senders are told.",
)
AMQP_DATA_FAILED: Final = LogEvent(
    "amqp.data_failed",
    "brokers.amqp.driver",
    ERROR,
    "%(connection)s: arriving data could not be handled",
    "Data of the peer caused an internal error, and the session ends; please report it.",
)
AMQP_FRAME: Final = LogEvent(
    "amqp.frame",
    "brokers.amqp.machine",
    DEBUG,
    "%(frame)s",
    "A frame that was sent or received, where tracing is on.",
)
AMQP_LOST_AT_CLOSE: Final = LogEvent(
    "amqp.lost_at_close",
    "brokers.amqp.connection",
    DEBUG,
    "%(connection)s: the connection was lost before it was closed",
    "The link broke before it was closed in order; nothing is lost by that.",
)
AMQP_NO_STAND_IN: Final = LogEvent(
    "amqp.no_stand_in",
    "brokers.amqp.driver",
    WARNING,
    "%(connection)s: no thread stands in for one that is busy: %(error)s",
    "A function for messages holds the thread that reads, and no other could be started.",
)
AMQP_READER_FAILED: Final = LogEvent(
    "amqp.reader_failed",
    "brokers.amqp.driver",
    ERROR,
    "%(connection)s: the reading thread failed",
    "The thread that reads failed by an internal error; please report it.",
    traceback=True,
)
AMQP_TOO_MANY_DELIVERIES: Final = LogEvent(
    "amqp.too_many_deliveries",
    "brokers.amqp.consumer",
    ERROR,
    "message %(message_id)s%(next)s: %(error)s",
    "The program never accepted the message; look into what it does with it.",
)
AMQP_LISTENER_CLIENT_LEFT: Final = LogEvent(
    "amqp_listener.client_left",
    "brokers.amqp.listener.client",
    DEBUG,
    "%(client)s has left: %(error)s",
    "A client ended its connection, in order or not.",
)
AMQP_LISTENER_LEFT_OUT_OF_COMMIT: Final = LogEvent(
    "amqp_listener.left_out_of_commit",
    "brokers.amqp.listener.transactions",
    WARNING,
    "a transaction was committed without a message of it: %(error)s",
    "A message of a transaction was refused; the rest was committed.",
)
AMQP_LISTENER_NO_ROOM: Final = LogEvent(
    "amqp_listener.no_room",
    "brokers.amqp.listener",
    WARNING,
    "%(listener)s: there is no room for another client of %(user)s, so %(peer)s is refused",
    "One user has all connections that it may have; raise its limit, or close some.",
)
AMQP_LISTENER_NO_TLS: Final = LogEvent(
    "amqp_listener.no_tls",
    "brokers.amqp.listener.client",
    INFO,
    "%(client)s: no TLS: %(error)s",
    "A client did not agree on TLS.",
)
AMQP_LISTENER_SUBSCRIPTION_KEPT: Final = LogEvent(
    "amqp_listener.subscription_kept",
    "brokers.amqp.listener.links",
    INFO,
    "the subscription %(subscription)s is kept: %(error)s",
    "A durable subscription could not be ended, and is kept.",
)
AMQP_LISTENER_TURNED_AWAY: Final = LogEvent(
    "amqp_listener.turned_away",
    "brokers.amqp.listener",
    WARNING,
    "%(listener)s: %(peer)s is turned away: %(error)s",
    "A client was refused before it could log in.",
)
CALLBACK_FAILED: Final = LogEvent(
    "callback.failed",
    "brokers.threads.futures",
    ERROR,
    "a callback of the connection failed",
    "A function that was to be called back raised an error.",
    traceback=True,
)
CLIENTS_ENDED: Final = LogEvent(
    "clients.ended",
    "brokers.listeners.room",
    WARNING,
    "there is no room for more %(what)s: %(count)d were ended, the last for one from %(peer)s",
    "Clients that had not logged in, or too many of one place, were ended to make room.",
)
CONNECTION_ATTEMPT_FAILED: Final = LogEvent(
    "connection.attempt_failed",
    "brokers.adapter.endpoints",
    WARNING,
    "%(connection)s: attempt %(attempt)d failed: %(error)s",
    "An attempt to reconnect failed; another follows.",
)
CONNECTION_GIVEN_UP: Final = LogEvent(
    "connection.given_up",
    "brokers.adapter.connection",
    ERROR,
    "%(error)s, so the connection is closed",
    "The connection is closed for good; make a new one.",
)
CONNECTION_LOST: Final = LogEvent(
    "connection.lost",
    "brokers.adapter.connection",
    WARNING,
    "%(error)s%(next)s",
    "The link to the broker broke. With reconnecting, calls wait until there is another.",
)
CONNECTION_RESTORED: Final = LogEvent(
    "connection.restored",
    "brokers.adapter.endpoints",
    WARNING,
    "%(connection)s: connected again after %(seconds).1f s",
    "There is a session again, so many seconds after the last one was lost.",
)
CONNECTION_TASK_DELAYED: Final = LogEvent(
    "connection.task_delayed",
    "brokers.adapter.connection",
    WARNING,
    "%(connection)s: a due task has to wait: %(error)s",
    "A task that was due runs later, as no thread could be started.",
)
CONSUMER_ENDED: Final = LogEvent(
    "consumer.ended",
    "brokers.adapter.consumer",
    ERROR,
    "the broker ended the consumer of %(destination)s, which cannot be renewed: %(error)s",
    "The broker ended the consumer of a temporary destination; those who wait for its messages are told.",
)
CONSUMER_GONE_BEFORE: Final = LogEvent(
    "consumer.gone_before",
    "brokers",
    DEBUG,
    "the consumer was gone before: %(error)s",
    "A consumer was closed that had ended with its connection.",
)
CONSUMER_INTERRUPTED: Final = LogEvent(
    "consumer.interrupted",
    "brokers.adapter.consumer",
    ERROR,
    "the broker ended the consumer of %(destination)s, which will be renewed: %(error)s",
    "The broker ended the consumer; it is renewed again and again, see `consumer.renewed`.",
)
CONSUMER_NOT_RENEWED: Final = LogEvent(
    "consumer.not_renewed",
    "brokers.adapter.consumer",
    WARNING,
    "no consumer of %(destination)s yet: %(error)s",
    "An attempt to renew a consumer failed; another follows.",
)
CONSUMER_RENEWED: Final = LogEvent(
    "consumer.renewed",
    "brokers.adapter.consumer",
    WARNING,
    "the consumer of %(destination)s was renewed after %(seconds).1f s",
    "Messages come again, so many seconds after the consumer ended.",
)
DELIVERY_FAILED: Final = LogEvent(
    "delivery.failed",
    "brokers.adapter.consumer",
    ERROR,
    "on_delivery failed, so message %(message_id)s is released",
    "A function for messages raised an error; the broker delivers the message again.",
    traceback=True,
)
DELIVERY_OUT_OF_MEMORY: Final = LogEvent(
    "delivery.out_of_memory",
    "brokers.adapter.consumer",
    ERROR,
    "a message of %(octets)d octets is released: there is no memory to read it",
    "The broker delivers the message again; give the process more memory, or lower `maxMessage`.",
)
DELIVERY_REFUSAL_FAILED: Final = LogEvent(
    "delivery.refusal_failed",
    "brokers.adapter.consumer",
    ERROR,
    "on_refused failed for message %(message_id)s",
    "A function for refused messages raised an error; the message stays refused.",
    traceback=True,
)
DELIVERY_REFUSED: Final = LogEvent(
    "delivery.refused",
    "brokers.adapter.consumer",
    WARNING,
    "message %(message_id)s from %(destination)s was dropped: %(error)s",
    "The message was above a limit, or could not be read; the broker makes it a dead letter or drops it.",
)
DELIVERY_REJECTED: Final = LogEvent(
    "delivery.rejected",
    "brokers.amqp.consumer",
    WARNING,
    "message %(message_id)s was rejected: %(error)s",
    "The program rejected the message; the broker makes it a dead letter or drops it.",
)
DESTINATION_GONE_BEFORE: Final = LogEvent(
    "destination.gone_before",
    "brokers",
    DEBUG,
    "%(destination)s was gone before: %(error)s",
    "A temporary destination was ended that had ended with its connection.",
)
EMBEDDED_DEAD_LETTER_DROPPED: Final = LogEvent(
    "embedded.dead_letter_dropped",
    "brokers.embedded.core",
    ERROR,
    "dropped message %(message_id)s: %(error)s",
    "There is no room for the dead letter, and it is lost.",
)
EMBEDDED_DELIVERY_FAILED: Final = LogEvent(
    "embedded.delivery_failed",
    "brokers.embedded.connection",
    ERROR,
    "on_delivery failed, so message %(message_id)s is released",
    "A function for messages raised an error; the message is delivered again.",
    traceback=True,
)
EMBEDDED_MESSAGE_DROPPED: Final = LogEvent(
    "embedded.message_dropped",
    "brokers.embedded.core",
    ERROR,
    "dropped message %(message_id)s from %(destination)s: %(error)s",
    "The message could become no dead letter, and is lost.",
)
ENVIRONMENT_OLD_NAME: Final = LogEvent(
    "environment.old_name",
    "brokers.environment",
    WARNING,
    "old names of variables are set, which are still read: %(old)s; the new names are %(new)s",
    "Rename the variables.",
)
FILES_FEW: Final = LogEvent(
    "files.few",
    "brokers.listeners.descriptors",
    WARNING,
    (
        "%(what)s: at most %(most)d, not %(wanted)d, because this process may have no more than "
        "%(limit)d files open; see ulimit -n"
    ),
    "Raise the limit of open files: `ulimit -n`.",
)
FILES_LIMIT_KEPT: Final = LogEvent(
    "files.limit_kept",
    "brokers.listeners.descriptors",
    DEBUG,
    "the limit of open files stays at %(limit)d",
    "The system allows no higher limit of open files.",
)
FUTURE_CALLBACK_FAILED: Final = LogEvent(
    "future.callback_failed",
    "brokers.threads.futures",
    ERROR,
    "a callback of %(future)r failed",
    "A function that was to be called back raised an error.",
    traceback=True,
)
FUTURE_SETTLED_CALLBACK_FAILED: Final = LogEvent(
    "future.settled_callback_failed",
    "brokers.threads.futures",
    ERROR,
    "a callback of %(future)r failed",
    "A function that was to be called back raised an error.",
    traceback=True,
)
LOGIN_REFUSED: Final = LogEvent(
    "login.refused",
    "brokers.listeners.guesses",
    WARNING,
    "a %(what)s %(who)s was refused%(more)s",
    "Somebody tried a wrong password or user.",
)
LOGIN_UNSEEN: Final = LogEvent(
    "login.unseen",
    "brokers.listeners.guesses",
    WARNING,
    "%(what)s %(who)s are refused unseen for now, but one every %(seconds)g s",
    "Too many wrong passwords came from there: most further logins are refused without a look.",
)
SEND_REPEATED: Final = LogEvent(
    "send.repeated",
    "brokers",
    DEBUG,
    "nothing was sent: %(error)s",
    "The connection was lost before anything was sent; the message is sent once there is another.",
)
SMQP_CONSUMER_ENDED: Final = LogEvent(
    "smqp.consumer_ended",
    "brokers.smqp.adapter.consumer",
    ERROR,
    "the consumer of %(destination)s has ended: %(error)s",
    "The consumer has ended for good.",
)
SMQP_CONSUMER_INTERRUPTED: Final = LogEvent(
    "smqp.consumer_interrupted",
    "brokers.smqp.adapter.consumer",
    ERROR,
    "the consumer of %(destination)s has ended, and will be created again: %(error)s",
    "The consumer is renewed again and again.",
)
SMQP_CONSUMER_NOT_RENEWED: Final = LogEvent(
    "smqp.consumer_not_renewed",
    "brokers.smqp.adapter.consumer",
    DEBUG,
    "no consumer of %(destination)s yet: %(error)s",
    "An attempt to renew a consumer failed; another follows.",
)
SMQP_CONSUMER_RENEWED: Final = LogEvent(
    "smqp.consumer_renewed",
    "brokers.smqp.adapter.consumer",
    WARNING,
    "there is a consumer of %(destination)s again",
    "Messages come again.",
)
SMQP_DEAD_LETTER_FAILED: Final = LogEvent(
    "smqp.dead_letter_failed",
    "brokers.smqp.adapter.connection",
    ERROR,
    "message %(message_id)s could not be sent to its dead letter queue",
    "The message stays where it was, and comes again.",
    traceback=True,
)
SMQP_DELIVERY_FAILED: Final = LogEvent(
    "smqp.delivery_failed",
    "brokers.smqp.adapter.consumer",
    ERROR,
    "on_delivery failed; message %(message_id)s was released",
    "A function for messages raised an error; the message is delivered again.",
    traceback=True,
)
SMQP_NOT_RELEASED: Final = LogEvent(
    "smqp.not_released",
    "brokers.smqp.adapter.consumer",
    ERROR,
    "message %(message_id)s could not be released",
    "The message comes again once the connection has ended.",
    traceback=True,
)
SMQP_CLIENT_CALLBACK_FAILED: Final = LogEvent(
    "smqp_client.callback_failed",
    "brokers.smqp.client.notifications",
    ERROR,
    "a callback failed for %(subject)s",
    "A function for messages raised an error; the message counts as given.",
    traceback=True,
)
SMQP_CLIENT_CHECK_FAILED: Final = LogEvent(
    "smqp_client.check_failed",
    "brokers.smqp.client.connection",
    ERROR,
    "the connection to the server could not be checked or re-established",
    "An internal error; please report it.",
    traceback=True,
)
SMQP_CLIENT_FOREIGN_PEER: Final = LogEvent(
    "smqp_client.foreign_peer",
    "brokers.smqp.client.listener",
    WARNING,
    "%(peer)s is not the server, so its notify connection was refused",
    "Somebody else than the server connected to the port for notifications.",
)
SMQP_CLIENT_INBOX_FAILED: Final = LogEvent(
    "smqp_client.inbox_failed",
    "brokers.smqp.client.notifications",
    WARNING,
    "the inbox cannot be used, trying again in %(seconds)g s: %(error)s",
    "Make room on the disk; messages are kept by the server meanwhile.",
)
SMQP_CLIENT_LOGIN_MESSAGE: Final = LogEvent(
    "smqp_client.login_message",
    "brokers.smqp.client.notifications",
    INFO,
    "message %(smuid)s on the login topic was not expected",
    "A message on the topic of a login that nobody waits for.",
)
SMQP_CLIENT_NO_ANSWER: Final = LogEvent(
    "smqp_client.no_answer",
    "brokers.smqp.client.connection",
    INFO,
    "the server does not answer: %(error)s",
    "The connection counts as lost, and is made again.",
)
SMQP_CLIENT_NO_SMUID: Final = LogEvent(
    "smqp_client.no_smuid",
    "brokers.smqp.client.listener",
    WARNING,
    "a message of %(topic)s has no Smuid",
    "The server sent a message without Smuid, which is refused.",
)
SMQP_CLIENT_NOT_CONNECTED: Final = LogEvent(
    "smqp_client.not_connected",
    "brokers.smqp.client.connection",
    INFO,
    "not connected yet: %(error)s",
    "Another attempt follows.",
)
SMQP_CLIENT_NOTIFICATION_UNREAD: Final = LogEvent(
    "smqp_client.notification_unread",
    "brokers.smqp.client.listener",
    WARNING,
    "a notification cannot be read: %(error)s",
    "The server sent something that is no notification.",
)
SMQP_CLIENT_NOTIFY_ENDED: Final = LogEvent(
    "smqp_client.notify_ended",
    "brokers.smqp.client.listener",
    DEBUG,
    "the notify connection ended: %(error)s",
    "The server opens another connection for notifications when it has one.",
)
SMQP_CLIENT_NOTIFY_FAILED: Final = LogEvent(
    "smqp_client.notify_failed",
    "brokers.smqp.client.listener",
    ERROR,
    "the notify connection failed",
    "An internal error ended the connection for notifications; please report it.",
    traceback=True,
)
SMQP_CLIENT_NOTIFY_NOT_ACCEPTED: Final = LogEvent(
    "smqp_client.notify_not_accepted",
    "brokers.smqp.client.listener",
    WARNING,
    "a notify connection could not be accepted: %(error)s",
    "The server tries again.",
)
SMQP_CLIENT_QUIT_UNANSWERED: Final = LogEvent(
    "smqp_client.quit_unanswered",
    "brokers.smqp.client.connection",
    DEBUG,
    "the server did not answer QUIT: %(error)s",
    "The server did not answer the end of the session; nothing is lost by that.",
)
SMQP_CLIENT_SUBSCRIPTION_NOT_RENEWED: Final = LogEvent(
    "smqp_client.subscription_not_renewed",
    "brokers.smqp.client.connection",
    WARNING,
    "a subscription could not be renewed: %(error)s",
    "Another attempt follows.",
)
SMQP_CLIENT_WATCHER_FAILED: Final = LogEvent(
    "smqp_client.watcher_failed",
    "brokers.smqp.client.connection",
    ERROR,
    "a watcher of the connection failed",
    "A function that watches the connection raised an error.",
    traceback=True,
)
SMQP_SERVER_CLIENT_UNREACHABLE: Final = LogEvent(
    "smqp_server.client_unreachable",
    "brokers.smqp.server.driver",
    INFO,
    "client %(peer)s cannot be reached at port %(port)d: %(error)s",
    "Notifications for the client wait until its port can be reached.",
)
SMQP_SERVER_COMMAND_FAILED: Final = LogEvent(
    "smqp_server.command_failed",
    "brokers.smqp.server.engine",
    ERROR,
    "a command of session %(session)d failed",
    "An internal error; please report it.",
    traceback=True,
)
SMQP_SERVER_COMMAND_NOT_STORED: Final = LogEvent(
    "smqp_server.command_not_stored",
    "brokers.smqp.server.engine",
    ERROR,
    "a command of session %(session)d failed in the store",
    "The disk may be full; the client is told.",
    traceback=True,
)
SMQP_SERVER_COMMAND_REFUSED: Final = LogEvent(
    "smqp_server.command_refused",
    "brokers.smqp.server.engine",
    DEBUG,
    "session %(session)d was refused a command: %(error)s",
    "A client is told why.",
)
SMQP_SERVER_COMMIT_FAILED: Final = LogEvent(
    "smqp_server.commit_failed",
    "brokers.smqp.server.engine",
    ERROR,
    "the last changes could not be committed; all connections are closed",
    "The disk may be full; clients send again what was not confirmed.",
    traceback=True,
)
SMQP_SERVER_LINK_DOWN: Final = LogEvent(
    "smqp_server.link_down",
    "brokers.smqp.server.links",
    INFO,
    "the link to %(peer)s does not work: %(error)s",
    "The other server cannot be reached; its messages wait.",
)
SMQP_SERVER_LINK_FAILED: Final = LogEvent(
    "smqp_server.link_failed",
    "brokers.smqp.server.links",
    ERROR,
    "the link to %(peer)s failed",
    "An internal error; please report it.",
    traceback=True,
)
SMQP_SERVER_MESSAGE_REFUSED: Final = LogEvent(
    "smqp_server.message_refused",
    "brokers.smqp.server.links",
    WARNING,
    "%(peer)s refused message %(smuid)d: %(error)s",
    "The other server refused the message; it is not sent again.",
)
SMQP_SERVER_OPERATION_FAILED: Final = LogEvent(
    "smqp_server.operation_failed",
    "brokers.smqp.server.engine",
    ERROR,
    "an operation of the server failed, and was undone",
    "An internal error; please report it.",
    traceback=True,
)
SMQP_SERVER_PEER_UNREACHABLE: Final = LogEvent(
    "smqp_server.peer_unreachable",
    "brokers.smqp.server.commands.settings",
    WARNING,
    "%(user)s is unreachable at port %(port)d of %(peer)s: %(error)s",
    "Notifications for the client wait until its port can be reached.",
)
SMQP_SERVER_STORE_NOT_CLOSED: Final = LogEvent(
    "smqp_server.store_not_closed",
    "brokers.smqp.server.engine",
    ERROR,
    "the store could not be closed: %(error)s",
    "The file of the store may need a look.",
)
SMQP_SERVER_STORE_UNREAD: Final = LogEvent(
    "smqp_server.store_unread",
    "brokers.smqp.server.engine",
    ERROR,
    "the store cannot be read: %(error)s",
    "Make sure that the disk can be read.",
)
SMQP_SERVER_STORE_UNUSABLE: Final = LogEvent(
    "smqp_server.store_unusable",
    "brokers.smqp.server.engine",
    ERROR,
    "the store cannot be used: %(error)s",
    "The server ends; make room, or check the permissions.",
)
STOMP_ACCEPTANCE_UNANSWERED: Final = LogEvent(
    "stomp.acceptance_unanswered",
    "brokers.stomp.consumer",
    WARNING,
    "%(error)s",
    "Messages that were accepted may come again.",
)
STOMP_ACCEPTED_AT_ONCE: Final = LogEvent(
    "stomp.accepted_at_once",
    "brokers.stomp.consumer",
    WARNING,
    (
        "from now on messages from %(destination)s count as accepted at once, because senders over AMQP "
        "choose their ids, which cannot be accepted over STOMP; messages waiting at the broker may be "
        "lost, but not over AMQP"
    ),
    "Consume over AMQP, or have the senders choose no ids.",
)
STOMP_ACK_UNANSWERED: Final = LogEvent(
    "stomp.ack_unanswered",
    "brokers.stomp.consumer",
    ERROR,
    "%(connection)s did not answer an ACK within %(seconds).0f s, so the session is replaced",
    "The session is replaced; the broker delivers again what it has not noted.",
)
STOMP_CONSUMER_STUCK: Final = LogEvent(
    "stomp.consumer_stuck",
    "brokers.stomp.consumer",
    ERROR,
    (
        "the broker closed a consumer of %(destination)s, but may keep sending messages to it, so the "
        "session is replaced"
    ),
    "The session is replaced, so that no message stays with a consumer that is closed.",
)
STOMP_DEAD_LETTER_OUT_OF_MEMORY: Final = LogEvent(
    "stomp.dead_letter_out_of_memory",
    "brokers.stomp.consumer",
    ERROR,
    "there is no memory for the dead letter of %(message_id)s, so it goes back",
    "The message comes again; give the process more memory.",
)
STOMP_DEAD_LETTER_REFUSED: Final = LogEvent(
    "stomp.dead_letter_refused",
    "brokers.stomp.consumer",
    ERROR,
    "message %(message_id)s was refused as a dead letter, so it comes again: %(error)s",
    "Check that the user may write to the queue for dead letters.",
)
STOMP_DELIVERY_REJECTED: Final = LogEvent(
    "stomp.delivery_rejected",
    "brokers.stomp.consumer",
    WARNING,
    "message %(message_id)s was rejected: %(error)s",
    "The program rejected the message, which is a dead letter now, or is dropped.",
)
STOMP_ENDS_NOT_REPORTED: Final = LogEvent(
    "stomp.ends_not_reported",
    "brokers.stomp.roll",
    WARNING,
    "%(connection)s does not report ended consumers, on %(destination)s: %(error)s",
    "A consumer that the broker ends is noticed late; let the user read the advisory topics.",
)
STOMP_ENDS_REPORTED: Final = LogEvent(
    "stomp.ends_reported",
    "brokers.stomp.roll",
    WARNING,
    "%(connection)s reports ended consumers after all, on %(destination)s",
    "Ended consumers are noticed at once again.",
)
STOMP_FRAME_REFUSED: Final = LogEvent(
    "stomp.frame_refused",
    "brokers.stomp.session",
    WARNING,
    "%(connection)s: a frame without receipt failed: %(error)s",
    "The broker refused a frame, such as a message to a destination that has ended.",
)
STOMP_FRAME_UNREAD: Final = LogEvent(
    "stomp.frame_unread",
    "brokers.stomp.socket",
    WARNING,
    "%(connection)s: a frame could not be read: %(error)s",
    "The peer sent something that is not STOMP, and the connection ends.",
)
STOMP_LOGIN_AGAIN: Final = LogEvent(
    "stomp.login_again",
    "brokers.stomp.connection",
    WARNING,
    "%(error)s; logging in again",
    "The broker refused the version of STOMP; another login follows.",
)
STOMP_MESSAGE_LOST: Final = LogEvent(
    "stomp.message_lost",
    "brokers.stomp.consumer",
    ERROR,
    "message %(message_id)s is lost: it is too large to be read and sent to its queue again",
    "Raise `maxMessage`, or let the broker refuse messages of this size.",
)
STOMP_OUT_OF_MEMORY: Final = LogEvent(
    "stomp.out_of_memory",
    "brokers.stomp.socket",
    ERROR,
    "%(connection)s: there is no memory for the broker's data, so the connection ends",
    "The broker delivers again; give the process more memory, or lower `maxMessage`.",
)
STOMP_READ_FAILED: Final = LogEvent(
    "stomp.read_failed",
    "brokers.stomp.socket",
    WARNING,
    "%(connection)s: %(error)s",
    "The connection counts as lost.",
)
STOMP_SILENT: Final = LogEvent(
    "stomp.silent",
    "brokers.stomp.socket",
    WARNING,
    "%(connection)s: no sign of life from the broker for %(seconds).1f s",
    "The connection counts as lost.",
)
STOMP_STRAY_DOUBTED: Final = LogEvent(
    "stomp.stray_doubted",
    "brokers.stomp.strays",
    WARNING,
    "%(stray)s may not be on its queue, and is sent there over the next session: %(error)s",
    "The message is sent again over the next session.",
)
STOMP_STRAY_LOST: Final = LogEvent(
    "stomp.stray_lost",
    "brokers.stomp.strays",
    ERROR,
    (
        "%(stray)s may be lost: it was taken from its queue with another one of its id, and the "
        "connection ended before the broker confirmed that it is there again"
    ),
    "The broker may or may not have the message; look for its id there.",
)
STOMP_STRAY_RETURNED: Final = LogEvent(
    "stomp.stray_returned",
    "brokers.stomp.strays",
    WARNING,
    "%(stray)s is sent to its queue again: another one of this id was accepted",
    "The broker confirmed two messages of one id with one ACK; the other one is sent again.",
)
STOMP_STRAY_WAITS: Final = LogEvent(
    "stomp.stray_waits",
    "brokers.stomp.strays",
    ERROR,
    "%(stray)s is not on its queue, and is sent there again in %(seconds).0f s: %(error)s",
    "The message is sent again, and again until the broker takes it.",
)
STOMP_SUBSCRIPTIONS_DOUBTED: Final = LogEvent(
    "stomp.subscriptions_doubted",
    "brokers.stomp.session",
    DEBUG,
    "%(connection)s: %(count)d subscriptions may have ended: %(error)s",
    "Each of them is checked, and renewed if it ended.",
)
STOMP_TEMPORARIES_STAY: Final = LogEvent(
    "stomp.temporaries_stay",
    "brokers.stomp.temporary",
    WARNING,
    "%(connection)s: temporary queues stay until the connection ends: %(error)s",
    "The broker allows no further session; its temporary queues end with the connection.",
)
STOMP_TOO_MANY_DELIVERIES: Final = LogEvent(
    "stomp.too_many_deliveries",
    "brokers.stomp.consumer",
    ERROR,
    "message %(message_id)s is a dead letter: delivered %(count)d times and not accepted",
    "The program never accepted the message, which is a dead letter now; look into what it does with it.",
)
STOMP_TEXT_CUT: Final = LogEvent(
    "stomp.text_cut",
    "brokers.stomp.session",
    WARNING,
    (
        "%(connection)s: the text of message %(message_id)s may have a NUL, where the broker ends its frame, so that "
        "the connection ends too; the message %(next)s"
    ),
    "Have the sender leave out NUL or send bytes, or consume over AMQP.",
)
STOMP_TRANSACTION_REFUSED: Final = LogEvent(
    "stomp.transaction_refused",
    "brokers.stomp.transaction",
    ERROR,
    "a commit was refused, so the connection is closed; the broker delivers again: %(error)s",
    "The broker refused a commit; it delivers what the transaction had accepted again.",
)
STOMP_UNSETTLED: Final = LogEvent(
    "stomp.unsettled",
    "brokers.stomp.consumer",
    ERROR,
    "%(error)s",
    "The text says what to do.",
)
TASK_FAILED: Final = LogEvent(
    "task.failed",
    "brokers.threads.pool",
    ERROR,
    "a task of %(pool)s failed",
    "An internal error; please report it.",
    traceback=True,
)
TASK_ITEM_FAILED: Final = LogEvent(
    "task.item_failed",
    "brokers.threads.pool",
    ERROR,
    "the function that handles an item failed",
    "An internal error; please report it.",
    traceback=True,
)
TASK_WAITS: Final = LogEvent(
    "task.waits",
    "brokers.threads.pool",
    ERROR,
    "%(pool)s: tasks wait, because no further thread could be started: %(error)s",
    "No further thread could be started; tasks wait for those that there are.",
)
TIMER_FAILED: Final = LogEvent(
    "timer.failed",
    "brokers.threads.timer",
    ERROR,
    "a function that was due failed",
    "An internal error; please report it.",
    traceback=True,
)
TLS_HANDSHAKE_FAILED: Final = LogEvent(
    "tls.handshake_failed",
    "brokers.listeners.handshakes",
    INFO,
    "no TLS with %(peer)s: %(error)s",
    "A client and the listener did not agree on TLS.",
)
TLS_UNCHECKED: Final = LogEvent(
    "tls.unchecked",
    "brokers.tls",
    WARNING,
    "the certificate of %(host)s is not checked: anyone on the path can read and change traffic",
    "Give a certificate authority: `caFile=` in the URL.",
)
TRANSACTION_REFUSED: Final = LogEvent(
    "transaction.refused",
    "brokers.amqp.transaction",
    ERROR,
    "a commit was refused, so the connection is closed; the broker delivers again: %(error)s",
    "The broker refused a commit; it delivers what the transaction had accepted again.",
)

EVENTS: Final = tuple(each for each in globals().values() if isinstance(each, LogEvent))
"""All events of this package."""
