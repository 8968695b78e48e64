"""Hostile capture logs, for tests that two ways of judging a log agree.

Most of a log is ordinary traffic, so that an exchange looks like many before it. The rest breaks that in each way in
which a peer, a broker or a capture may: ids that are missing, equal or exchanged, copies that differ in one thing or
come too late, bodies that are nearly like others, lines that are no records. The same seed makes the same log.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from vector_kit import VECTORS, members_of

from soapjms.generate.calls import Caller
from soapjms.generate.shapes import STACKS, AnswerKind, CaptureSides, Packaging, draw
from soapjms.generate.table import VIOLATIONS
from soapjms.generate.traffic import SECOND_MICROSECONDS, START, format_microseconds
from soapjms.generate.traffic import lines as captures_of
from soapjms.protocol.names import CR_NAMESPACE, DEFAULT_PROFILE, REC_NAMESPACE, Profile, SoapVersion

Members: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Random, Members], None]
"""Changes one record in place."""

QUEUES: Final = tuple(f"orders.{number:03}" for number in range(8))
SKEW: Final = 0.9
"""Share of the exchanges that go to the first queue."""
HABITS: Final = 20
"""Changes that a log has again and again, as senders have their habits."""
HOT_IDS: Final = 40
HOT_SHARE: Final = 0.15
"""Share of the exchanges that have one of `HOT_IDS` correlation ids."""
IDS: Final = ("message_id", "correlation_id")
MICROSECOND: Final = timedelta(microseconds=1)

GIVEN: Final = "jms:queue:orders.000?priority=4&timeToLive=30000&replyToName=replies.given"
"""What some senders to the first queue were given."""

# Bodies


def text_of(record: Members) -> str | None:
    """Return the body of a record as text; None if it has none, or none that is UTF-8."""
    body = record.get("body")
    if not isinstance(body, str) or record["message_type"] == "text":
        return body if isinstance(body, str) else None
    try:
        return b64decode(body).decode()
    except ValueError:
        return None


def give_body(record: Members, body: str | bytes) -> None:
    """Give a record another body, of its message type, with its digest if it had one."""
    octets = body if isinstance(body, bytes) else body.encode()
    if record["message_type"] == "text":
        record["body"] = octets.decode("utf-8", "replace")
        octets = record["body"].encode()
    else:
        record["body"] = b64encode(octets).decode()
    if "sha256" in record:
        record["sha256"] = sha256(octets).hexdigest()


def _edited(edit: Callable[[Random, str], str | bytes]) -> Change:
    """Make a change of the body."""

    def change(random: Random, record: Members) -> None:
        text = text_of(record)
        if text:
            give_body(record, edit(random, text))

    return change


def _inserted(after: str, *texts: str) -> Change:
    """Make a change that writes one of some texts behind the first place where the body has `after`."""

    def edit(random: Random, text: str) -> str:
        found = text.find(after)
        if found < 0:
            return text
        end = found + len(after)
        return text[:end] + random.choice(texts).replace("{}", f"{random.getrandbits(32)}") + text[end:]

    return _edited(edit)


def _before(*texts: str) -> Change:
    return _edited(lambda random, text: random.choice(texts) + text)


def _behind(*texts: str) -> Change:
    return _edited(lambda random, text: text + random.choice(texts))


DECLARATIONS: Final = (
    '<?xml version="1.0"?>',
    '<?xml version="1.0" encoding="utf-8"?>',
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>',
    "<?xml version='1.0' encoding='iso-8859-1'?>",
    '<?xml version="1.0" encoding="us-ascii"?>',
    '<?xml version="1.0" encoding="windows-1252"?>',
    '<?xml version="1.0" encoding="utf-16"?>',
    '<?xml version="1.0" encoding="x-unknown"?>',
    '<?xml version="1.1" encoding="utf-8"?>',
    "<?xml version='1.0' encoding='ut>f'?>",
)
WSA: Final = "http://www.w3.org/2005/08/addressing"
ADDRESSES: Final = (
    f"{WSA}/anonymous",
    f" {WSA}/anonymous ",
    "jms:queue:elsewhere",
    "",
    f"<?p?>{WSA}/anonymous",
    f"{WSA}<?p?>/anonymous",
    f"{WSA}/anonymous<!-- no -->",
    f"<!-- no -->{WSA}/anonymous",
    f"<![CDATA[{WSA}/anonymous]]>",
    f"{WSA}/anonym&#111;us",
)
FAULT_11: Final = "<f:Fault xmlns:f='http://schemas.xmlsoap.org/soap/envelope/'><faultcode>{}</faultcode></f:Fault>"
FAULT_12: Final = (
    "<f:Fault xmlns:f='http://www.w3.org/2003/05/soap-envelope'><f:Code><f:Value>f:Sender</f:Value><f:Subcode>"
    "<f:Value>{}</f:Value></f:Subcode></f:Code></f:Fault>"
)


def _addressed(random: Random, text: str) -> str:
    """Put a header with WS-Addressing before the body."""
    reply = f"<a:ReplyTo xmlns:a='{WSA}'><a:Address>{random.choice(ADDRESSES)}</a:Address></a:ReplyTo>"
    to = f"<a:To xmlns:a='{WSA}'>{random.choice(ADDRESSES)}</a:To>"
    inner = random.choice((reply, to, to + reply, reply.replace("Address>", "Nothing>")))
    return text.replace("<env:Body>", f"<env:Header>{inner}</env:Header><env:Body>", 1)


def _faulty(random: Random, text: str) -> str:
    """Put a fault in the place of the content."""
    begin, end = text.find(":Body>") + 6, text.rfind("</", 0, text.rfind(":Body>"))
    if begin < 6 or end < begin:
        return text
    space = random.choice((REC_NAMESPACE, CR_NAMESPACE, "urn:other"))
    code = random.choice(("f:Server", "f:Client.{}", "b:missingContentType", "b:contentTypeMismatch", "b:unknown"))
    fault = random.choice((FAULT_11, FAULT_12)).replace("{}", code.replace("{}", str(random.getrandbits(8))))
    return text[:begin] + fault.replace("<f:Fault ", f"<f:Fault xmlns:b='{space}' ", 1) + text[end:]


def _recoded(random: Random, text: str) -> bytes:
    return text.encode(random.choice(("utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "utf-8-sig")), "replace")


ROOT_END: Final = "</env:Envelope>"

BODIES: Final[tuple[Change, ...]] = (
    _before(*DECLARATIONS),
    _before(*(f"{each}\n" for each in DECLARATIONS)),
    _before(f"{DECLARATIONS[1]}junk", f"{DECLARATIONS[1]} \u00a0 ", "<?p?>junk", "<?p?> <?q?>", "<?p >junk<?>", "junk"),
    _inserted("?>", "junk", " ", "{}<?p?>", "<?p?>junk"),
    _before("\ufeff", f"\ufeff{DECLARATIONS[1]}", " ", "\n", "<!-- first -->", "<!DOCTYPE x>", "<!DOCTYPE x ["),
    _behind("junk", "junk<?p?>", "<?p?>", "<?p?>junk", "\n", "<!-- last -->", "&amp;", "<env:Envelope/>", "\0"),
    _inserted(":Body>", "text", " ", "text<!-- {} -->", "<?p > <x> ?>", "<?p?>{}<?q?>", "<![CDATA[<x>]]>", "]]>", "&"),
    _inserted(":Body>", "<x a='{}'/>", "<x a='>'>{}</x>", '<x a="1>2" b=\'"\'>{}</x>', "<x a='>{}<'/>", "<x a=>{}</x>"),
    _inserted(":Body>", "<x>]]&gt;</x>", "<x>]]></x>", "<x>&#{};</x>", "<x>&none;</x>", "<x>&#0;</x>", "<x>\x01</x>"),
    _inserted(":Body>", "<x>Fault</x>", "<Fault/>", "<x>\ufffe</x>", "<x>\x7f\x85</x>", "<x>ä\u2028€😀</x>", "<{}/>"),
    _inserted(":Body>", f"<x>{WSA}/anonymous</x>", "<p:x/>", "<p:x xmlns:p=''/>", "<x a='1' a='2'/>", "<x", "</x>"),
    _inserted(":Envelope", " a='{}'", " xmlns:z='urn:{}'", "{}", " env:encodingStyle=''", " a='&lt;'", " a='ä'"),
    _edited(lambda random, text: text.replace("<env:Body>", f"{'x' * random.randrange(3)}<env:Body>", 1)),
    _edited(lambda random, text: text.replace(ROOT_END, f"<env:{random.choice(('Body', 'Header'))}/>{ROOT_END}", 1)),
    _edited(lambda random, text: text.replace("schemas.xmlsoap.org", random.choice(("www.w3.org", "example.org")))),
    _edited(lambda random, text: text[: random.randrange(len(text))]),
    _edited(lambda random, text: text.replace(random.choice("<>/=\"':"), random.choice("<>/=\"':& x"), 1)),
    _edited(lambda random, text: "<x>" * 101 + "</x>" * 101 if random.random() < 0.5 else "<e/>"),
    _edited(lambda random, text: text.replace("<m:", f"<x>{'y' * 66_000}</x><m:", 1) if random.random() < 0.1 else "<"),
    _edited(_addressed),
    _edited(_addressed),
    _edited(_faulty),
    _edited(_faulty),
    _edited(_recoded),
)
"""Changes of a body."""

# Headers and properties


def _one_of(place: str, name: str, *values: Any) -> Change:
    """Make a change that gives a member one of some values; None removes it. `place` is "" for the record itself."""

    def change(random: Random, record: Members) -> None:
        value = random.choice(values)
        holder = record.setdefault(place, {}) if place else record
        if value is None:
            holder.pop(name, None)
        else:
            holder[name] = deepcopy(value)

    return change


def _jms(name: str, *values: Any) -> Change:
    return _one_of("jms", name, *values)


def _property(name: str, *values: Any) -> Change:
    return _one_of("properties", name, *values)


def _later(seconds: float) -> Change:
    """Make a change of the expiration, to some time from the timestamp on."""

    def change(random: Random, record: Members) -> None:
        record["jms"]["expiration"] = (record["jms"].get("timestamp") or 0) + int(seconds * 1000) + random.randrange(3)

    return change


def over_stomp(random: Random, record: Members) -> None:
    """Show a record as its STOMP sender sees it: without message id, and with strings as properties."""
    record["jms"].pop("message_id", None)
    record["untyped"] = True
    for name, value in record.get("properties", {}).items():
        record["properties"][name] = value if isinstance(value, str) else json.dumps(value)


def cut(random: Random, record: Members) -> None:
    """Cut the body, and drop the digest of it or leave it."""
    record["truncated"] = True
    if random.random() < 0.5:
        record.pop("sha256", None)
    text = text_of(record)
    if text is not None and random.random() < 0.8:
        stated = record.pop("sha256", None)
        give_body(record, text[: random.choice((0, 1, 40, len(text)))])
        record.update({} if stated is None else {"sha256": stated})
    else:
        record.pop("body", None)


def traced(random: Random, record: Members) -> None:
    """Give a record properties that are none of the binding's, unlike those of all others."""
    record["properties"]["traceparent"] = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-01"
    if random.random() < 0.3:
        record["properties"]["JMSXDeliveryCount"] = random.randrange(1, 4)
    if random.random() < 0.1:
        record["properties"]["attempt"] = random.random()


def acts_as_address(random: Random, record: Members) -> None:
    """Make the SOAP action the requestURI."""
    uri = record["properties"].get("SOAPJMS_requestURI", "jms:queue:x")
    record["properties"]["SOAPJMS_soapAction"] = random.choice((uri, f'"{uri}"'))


def as_given(random: Random, record: Members) -> None:
    """Keep, or nearly keep, what the sender was given by `GIVEN`."""
    jms = record["jms"]
    jms["priority"] = random.choice((*[4] * 9, 5))
    jms["expiration"] = (jms.get("timestamp") or 0) + 30_000 + random.choice((*[0] * 20, 1999, 2000, 2001, -2500))
    if jms.get("reply_to") is not None:
        jms["reply_to"] = {"kind": "queue", "name": random.choice((*["replies.given"] * 9, "replies.other"))}


def answered_as_given(random: Random, record: Members) -> None:
    """Answer what the sender was given."""
    record["destination"] = {"kind": "queue", "name": "replies.given"}
    record["jms"] |= {"priority": 4, "expiration": (record["jms"].get("timestamp") or 0) + 29_980}


DESTINATIONS: Final = (
    None,
    {"kind": "queue"},
    {"kind": "queue", "name": ""},
    {"kind": "queue", "name": "replies.app1"},
    {"kind": "topic", "name": "replies.app1"},
    {"kind": "queue", "name": "orders.001"},
    {"kind": "temporary-queue"},
    {"kind": "temporary-queue", "name": "replies.app1"},
    {"kind": "temporary-topic", "name": "ID:x:1"},
)
DIRECTIONS: Final = (None, "request", "response", "one-way")

HEADERS: Final[tuple[Change, ...]] = (
    _jms("message_id", None, None, ""),
    _jms("correlation_id", None, None, ""),
    _jms("reply_to", *DESTINATIONS),
    _one_of("", "destination", *DESTINATIONS),
    _one_of("", "direction", *DIRECTIONS),
    _one_of("", "direction", None),
    _jms("priority", None, 0, 4, 5, 12),
    _jms("delivery_mode", None, 1, 2, 3),
    _jms("expiration", None, 0, 1, 1767600000000),
    _later(30),
    _later(32),
    _later(-1),
    _jms("timestamp", None, 0, 1767600000000),
    _jms("type", None, "", "order"),
    _jms("redelivered", None, True, False),
    _one_of("", "untyped", None, True),
    _one_of("", "message_type", "bytes", "text", "unknown", "map", "object", "message", "stream"),
    _one_of("", "body", None),
    _one_of("", "sha256", None),
    _one_of("", "sha256", "0" * 64),
    _one_of("", "extra", 1, {"x": []}),
    _one_of("", "meta", None, {"host": "a"}, {}),
    _one_of("", "node", None, "tap", "requesting"),
    over_stomp,
    over_stomp,
    cut,
)
"""Changes of what is around the body and the properties."""

CONTENT_TYPES: Final = (
    None,
    "",
    "text/xml",
    "text/xml; charset=UTF-8",
    'text/xml; charset="us-ascii"',
    "text/xml; charset=iso-8859-1",
    "text/xml; charset=utf-16",
    "text/xml; charset=x-unknown",
    "text/xml; charset=cp037",
    "text/xml;charset=utf-8;charset=utf-16",
    "text/xml; charset=utf-8;",
    "application/soap+xml",
    "application/soap+xml; charset=utf-8",
    'application/soap+xml; action="jms:queue:orders.000"',
    'application/soap+xml; action="urn:example:placeOrder"',
    "application/xml",
    "text/plain",
    "multipart/related",
    'multipart/related; boundary=b; type="text/xml"',
    'multipart/related; boundary=b; type="application/xop+xml"; start-info="text/xml"',
)
PROPERTIES: Final[tuple[Change, ...]] = (
    _property("SOAPJMS_contentType", *CONTENT_TYPES),
    _property("SOAPJMS_contentType", *CONTENT_TYPES),
    _property("Content_Type", *CONTENT_TYPES),
    _property("SOAPJMS_requestURI", None, "", "jms:queue:orders.000", "jms:topic:orders.000", "jms:vnd.x:y", "queue:x"),
    _property("SOAPJMS_requestURI", "jms:jndi:x", "jms:queue:a b", "jms:queue:%6Frders.000", "jms:queue:", "jms:", "a"),
    _property("SOAPJMS_requestURI", "jms:queue:orders.000?priority=4", "jms:queue:orders.000?priority=4&priority=5"),
    _property("SOAPJMS_requestURI", "jms:queue:x?timeToLive=30000", "jms:queue:x?replyToName=replies.app1&a=b"),
    _property(
        "SOAPJMS_requestURI", "jms:queue:x?targetService=s", "jms:queue:x?deliveryMode=PERSISTENT", "jms:topic:t?a=b"
    ),
    _property("SOAPJMS_requestIRI", None, "jms:queue:orders.000", "jms:jndi:x"),
    _property("SOAPJMS_bindingVersion", None, "", "1.0", "1.1", 1, 1.0),
    _property("SOAPJMS_soapAction", None, "", "urn:example:placeOrder", '"urn:example:placeOrder"', '"', '""', 7),
    _property("SoapAction", None, "urn:example:placeOrder", '"urn:example:x"'),
    _property("SOAPJMS_isFault", None, True, False, "true", "false", 0, 1, 2, "", "1"),
    _property("SOAPJMS_targetService", None, "OrderService", "Other", ""),
    _property("SOAPJMS_contentEncoding", None, "gzip", "identity", "GZIP", " identity ", "deflate"),
    _property("SOAPJMS_contentLength", None, 1, "1"),
    _property("SOAPJMS_acceptEncoding", None, "gzip"),
    _property("Mime_Version", None, "1.0"),
    _property("SOAPJMS_other", "x" * 3000, "x"),
    _one_of("types", "SOAPJMS_isFault", "boolean", "string", "byte"),
    traced,
    traced,
    acts_as_address,
    acts_as_address,
)
"""Changes of the properties."""

CHANGES: Final = (HEADERS, PROPERTIES, BODIES)


def changed_anyhow(random: Random, record: Members) -> None:
    """Change one thing in a record."""
    random.choice(random.choice(CHANGES))(random, record)


# Copies


SHIFTS: Final = (0, 0.000001, 0.001, 0.5, -0.5, 5, 599.9, 600, 600.1, -599.9, -600.1, 3600, 86_400)
"""Times from a record to its copy, in seconds."""


def moved(record: Members, seconds: float) -> Members:
    """Return a copy of a record, captured so much later."""
    copy = deepcopy(record)
    copy["time"] = _written(_read(copy["time"]) + round(seconds * SECOND_MICROSECONDS))
    return copy


def _read(time: str) -> int:
    return (datetime.fromisoformat(time) - START) // MICROSECOND + int(START.timestamp()) * SECOND_MICROSECONDS


def _written(time: int) -> str:
    return format_microseconds(time)


def a_copy(random: Random, record: Members) -> Members:
    """Return a copy of a record that may differ in one thing, rarely in two."""
    copy = moved(record, random.choice(SHIFTS))
    for _ in range(random.choice((0, 0, 1, 1, 1, 1, 2))):
        (over_stomp if random.random() < 0.2 else changed_anyhow)(random, copy)
    return copy


# Exchanges

Exchange: TypeAlias = list[Members]
Twist: TypeAlias = Callable[[Random, Exchange], Exchange]
"""Returns other records for those of an exchange."""


def asking(records: Exchange) -> Exchange:
    """Return the records of the request, or of the one-way message."""
    return [each for each in records if each.get("destination") == records[0].get("destination")]


def answering(records: Exchange) -> Exchange:
    """Return the records of the response."""
    return [each for each in records if each.get("destination") != records[0].get("destination")]


def _half(random: Random, records: Exchange) -> Exchange:
    return random.choice((asking(records), answering(records))) or records


def _answered_first(random: Random, records: Exchange) -> Exchange:
    apart = random.choice((1, 1, 601))
    return [*asking(records), *(moved(each, -apart) for each in answering(records))]


def _answered_elsewhere(random: Random, records: Exchange) -> Exchange:
    other = random.choice(DESTINATIONS)
    return [*asking(records), *({**each, "destination": other} for each in answering(records))]


def _answered_by_message_id(random: Random, records: Exchange) -> Exchange:
    known = next((each["jms"]["message_id"] for each in asking(records) if each["jms"].get("message_id")), "none")
    found = deepcopy(records)
    for each in answering(found):
        each["jms"]["correlation_id"] = known
    return found


def _answered_twice(random: Random, records: Exchange) -> Exchange:
    more = [moved(each, random.choice((0, 0.1, 30))) for each in answering(records)]
    for each in more:
        if each["jms"].get("message_id"):
            each["jms"]["message_id"] += "-2"
    return [*records, *more]


def _asked_twice(random: Random, records: Exchange) -> Exchange:
    more = [moved(each, random.choice((0, 0.1, 30, 700))) for each in asking(records)]
    other = random.choice(("", "-2"))
    for each in more:
        if each["jms"].get("message_id"):
            each["jms"]["message_id"] += other
    return [*records, *more]


def _echoed(random: Random, records: Exchange) -> Exchange:
    """Answer with the body of the request, from which only direction, destination and message id tell the response."""
    first = records[0]
    echo = moved(first, 0.05)
    echo["destination"] = first["jms"].get("reply_to")
    echo["jms"].pop("reply_to", None)
    echo["direction"] = random.choice(("response", None))
    if first["jms"].get("message_id"):
        echo["jms"]["message_id"] = random.choice((first["jms"]["message_id"], f"{first['jms']['message_id']}-e"))
    echo["jms"].setdefault("correlation_id", first["jms"].get("message_id", "none"))
    return [*asking(records), echo]


def _answers_and_asks(random: Random, records: Exchange) -> Exchange:
    """Make the response one that may be answered itself."""
    found = deepcopy(records)
    for each in answering(found):
        each["jms"]["reply_to"] = random.choice(DESTINATIONS[1:])
    return found


def _exchanged_ids(random: Random, records: Exchange) -> Exchange:
    """Give messages of an exchange each other's ids."""
    known = [each["jms"].get(name) for each in records for name in IDS]
    found = deepcopy(records)
    jms = random.choice(found)["jms"]
    jms[random.choice(IDS)] = random.choice(known)
    return found


def _without_ids(random: Random, records: Exchange) -> Exchange:
    dropped = random.choice((["message_id"], ["correlation_id"], ["message_id", "correlation_id"]))
    found = deepcopy(records)
    for each in _half(random, found):
        for name in dropped:
            each["jms"].pop(name, None)
    return found


def _by_one_half(random: Random, records: Exchange) -> Exchange:
    return _half(random, records)


def _kin_of_two(random: Random, records: Exchange) -> Exchange:
    """Capture a message without its id, then with an id that the other message has too."""
    found = deepcopy(records)
    one = random.choice(found)
    other = random.choice(found)
    early = moved(one, -random.choice((0, 0.001, 1)))
    over_stomp(random, early)
    if other["jms"].get("message_id"):
        one["jms"]["message_id"] = other["jms"]["message_id"]
    return [early, *found]


def _direction_later(random: Random, records: Exchange) -> Exchange:
    """Capture a message without a direction, then with one, then without its id."""
    one = random.choice(records)
    early, late = moved(one, -0.001), moved(one, 0.001)
    early.pop("direction", None)
    late["direction"] = one.get("direction", "response")
    over_stomp(random, late)
    return [*records, early, late]


def _same_time(random: Random, records: Exchange) -> Exchange:
    return [{**each, "time": records[0]["time"]} for each in records]


def _repeated(random: Random, records: Exchange) -> Exchange:
    return [*records, *(deepcopy(random.choice(records)) for _ in range(random.choice((1, 2, 14))))]


TWISTS: Final[tuple[Twist, ...]] = (
    _answered_first,
    _answered_elsewhere,
    _answered_by_message_id,
    _answered_twice,
    _asked_twice,
    _echoed,
    _answers_and_asks,
    _exchanged_ids,
    _without_ids,
    _by_one_half,
    _kin_of_two,
    _direction_later,
    _same_time,
    _repeated,
)


SIDES: Final = (CaptureSides.TAP, CaptureSides.NODES, CaptureSides.STOMP)


class _Traffic:
    """Makes the records of one exchange after the other."""

    def __init__(self, seed: int, edition: Profile) -> None:
        self.random = Random(f"hostile {seed}")
        self._caller = Caller(self.random, edition, QUEUES, SKEW)
        self._sent = int(START.timestamp()) * SECOND_MICROSECONDS
        self._violations = [each for each in VIOLATIONS.values() if edition.edition in each.editions]
        self._earlier: list[Members] = []
        self._habits = [self._draw() for _ in range(HABITS)]

    def exchange(self) -> Exchange:
        """Return the records of an exchange."""
        random = self.random
        records = self._plain()
        if random.random() < HOT_SHARE:
            self._heat(records)
        if random.random() < 0.3:
            self._give(records)
        if random.random() < 0.4:
            return records
        if random.random() < 0.4:
            self._change(_half(random, records))
        if random.random() < 0.3:
            records = random.choice(TWISTS)(random, records)
        if random.random() < 0.06 and self._earlier:
            self._borrow(records)
        if random.random() < 0.3:
            records += [a_copy(random, random.choice(records)) for _ in range(random.choice((1, 1, 2, 3)))]
        self._earlier = [*self._earlier[-50:], deepcopy(random.choice(records))]
        return records

    def _plain(self) -> Exchange:
        random = self.random
        self._sent += 1000 * int(1 + random.expovariate(1 / 200))
        if random.random() < 0.002:
            self._sent += 700 * SECOND_MICROSECONDS
        violation = random.choice(self._violations) if random.random() < 0.04 else None
        wanted: Members = {"lifetime": random.choice((0, 0, 0, 30_000)), "priority": 4, "delivery_mode": 2}
        if random.random() < 0.1:
            wanted = {"answer": AnswerKind.NONE}
        if violation is not None:
            wanted = {"redelivered": False, "retried": False, **violation.wants}
        elif random.random() < 0.9:
            wanted |= {"packaging": Packaging.PLAIN, "variant": "queue", "seen": random.choice(SIDES)}
        if violation is None and random.random() < 0.7:
            wanted |= {"stack": STACKS.draw(random), "version": SoapVersion.SOAP_11, "message_type": "bytes"}
        call = self._caller.call(draw(random, wanted), self._sent, violation)
        return [json.loads(each.to_json()) for each in captures_of(call, random)]

    def _change(self, records: Exchange) -> None:
        """Change all copies of a message in the same way, in most cases by a habit."""
        change, state = self.random.choice(self._habits) if self.random.random() < 0.7 else self._draw()
        for each in records:
            change(Random(state), each)

    def _draw(self) -> tuple[Change, float]:
        return self.random.choice(self.random.choice(CHANGES)), self.random.random()

    def _give(self, records: Exchange) -> None:
        state = self.random.random()
        answers = answering(records)
        for each in asking(records):
            as_given(Random(state), each)
        for each in answers:
            answered_as_given(Random(state), each)

    def _heat(self, records: Exchange) -> None:
        hot = f"hot-{self.random.randrange(HOT_IDS)}"
        for each in records:
            each["jms"]["correlation_id"] = hot

    def _borrow(self, records: Exchange) -> None:
        """Give messages an id of an earlier exchange."""
        lent = self.random.choice(self._earlier)["jms"]
        name = self.random.choice(IDS)
        value = lent.get(self.random.choice(IDS))
        for each in _half(self.random, records) if self.random.random() < 0.7 else records:
            each["jms"][name] = value


NO_RECORDS: Final = (
    b"",
    b"   ",
    b"no JSON",
    b"[]",
    b"null",
    b'{"v":2,"time":"2026-01-05T08:00:00Z","message_type":"text"}',
    b'{"v":1,"message_type":"text"}',
    b'{"v":1,"time":"yesterday","message_type":"text"}',
    b'{"v":1,"time":"2026-01-05T08:00:00Z","message_type":"bytes","body":"%%%"}',
    b'{"v":1,"time":"2026-01-05T08:00:00Z","message_type":"text","body":"\\ud800"}',
    b'{"v":1,"time":"2026-01-05T08:00:00Z","message_type":"text","body":"\xff"}',
    b'{"v":1,"time":"2026-01-05T08:00:00Z","message_type":"text","jms":{"priority":"high"}}',
    b'{"v":1,"time":"2026-01-05T08:00:00Z","message_type":"text","properties":{"a":{}}}',
)


def hostile_lines(seed: int, lines: int, edition: Profile = DEFAULT_PROFILE) -> Iterator[bytes]:
    """Yield the lines of a hostile log, not in order of time; what is not hostile keeps the rules of an edition."""
    traffic = _Traffic(seed, edition)
    random = traffic.random
    records: list[Members] = []
    while len(records) < lines:
        records.extend(traffic.exchange())
    del records[lines:]
    places = [number + random.random() * random.choice((0, 5, 50)) for number in range(lines)]
    for _, record in sorted(zip(places, records, strict=True), key=lambda each: each[0]):
        line = json.dumps(record, ensure_ascii=random.random() < 0.1).encode("utf-8", "replace")
        chance = random.random()
        if chance < 0.005:
            yield random.choice(NO_RECORDS)
        yield line[: random.randrange(len(line))] if 0.005 < chance < 0.01 else line


def write_hostile_log(path: Path, seed: int, lines: int, edition: Profile = DEFAULT_PROFILE) -> Path:
    """Write a hostile log."""
    path.write_bytes(b"".join(line + b"\n" for line in hostile_lines(seed, lines, edition)))
    return path


# Groups of records that have few ids

TINY: Final[tuple[Change, ...]] = (
    _jms("message_id", None, "", "m1", "m2", "c1"),
    _jms("correlation_id", None, "", "c1", "m1", "m2", "c2"),
    _jms("reply_to", None, {"kind": "queue", "name": "r1"}, {"kind": "queue", "name": "r2"}, {"kind": "queue"}),
    _one_of("", "direction", *DIRECTIONS),
    over_stomp,
    over_stomp,
    _one_of("", "destination", None, {"kind": "queue", "name": "s"}, {"kind": "queue", "name": "r1"}),
    _one_of("", "destination", {"kind": "queue", "name": "r2"}, {"kind": "topic", "name": "r1"}, {"kind": "queue"}),
    _jms("priority", None, 4, 5),
    _jms("expiration", None, 0, 1767600030000),
    _jms("timestamp", None, 0, 1767600000000),
    _jms("delivery_mode", None, 1),
    _jms("type", "", "order"),
    _jms("redelivered", True),
    _one_of("", "untyped", None, True),
    _one_of("", "sha256", None),
    _one_of("", "body", None),
    _one_of("", "extra", 1),
    _one_of("", "message_type", "bytes", "text", "unknown"),
    _property("SOAPJMS_soapAction", None, "urn:a", '"urn:a"'),
    _property("SOAPJMS_isFault", None, True, False, "false"),
    _edited(lambda random, text: text.replace("1</", random.choice(("2</", "</", "junk<x/>1</")), 1)),
    cut,
    _before(DECLARATIONS[1]),
)
"""Changes that make copies of a message uncertain, and messages nearly equal."""


def as_text(random: Random, record: Members) -> None:
    """Make a record that of a TextMessage."""
    text = text_of(record) or ""
    record["message_type"] = "text"
    give_body(record, text)


def as_soap_12(random: Random, record: Members) -> None:
    """Make a record that of a message with SOAP 1.2."""
    text = text_of(record) or ""
    give_body(record, text.replace(SoapVersion.SOAP_11.namespace, SoapVersion.SOAP_12.namespace))
    record["properties"]["SOAPJMS_contentType"] = "application/soap+xml; charset=utf-8"


TINY_BASES: Final[tuple[Change, ...]] = (
    as_text,
    as_soap_12,
    _before(*DECLARATIONS[:3]),
    _behind("<?p?>"),
    _edited(_addressed),
    _edited(_faulty),
    _inserted(":Body>", "<x>{}</x>", "<x a='>'>{}</x>", "<x>&amp;</x>"),
    _later(30),
    _later(30),
    _later(30),
)
"""Changes of all messages of a call; some break no rule."""

TINY_GIVEN: Final = "jms:queue:s?priority=4&timeToLive=30000&replyToName=r1"
"""What the sender of these calls was given."""
TINY_TIMES: Final = (0, 0, 0.001, 1, 2, 300, 599.9, 600, 600.1, 900, 1300)
TINY_BODY: Final = f"<env:Envelope xmlns:env='{SoapVersion.SOAP_11.namespace}'><env:Body><x>1</x></env:Body>{ROOT_END}"
TINY_PROPERTIES: Final = {
    "SOAPJMS_requestURI": "jms:queue:s",
    "SOAPJMS_bindingVersion": "1.0",
    "SOAPJMS_contentType": "text/xml; charset=utf-8",
}
TINY_HEADERS: Final = {"delivery_mode": 2, "priority": 4, "expiration": 0, "timestamp": 1767600000000}


def _tiny(direction: str, destination: str, jms: Members, **properties: Any) -> Members:
    record: Members = {
        "v": 1,
        "time": _written(int(START.timestamp()) * SECOND_MICROSECONDS),
        "direction": direction,
        "destination": {"kind": "queue", "name": destination},
        "jms": {**jms, **TINY_HEADERS},
        "properties": {**TINY_PROPERTIES, **{f"SOAPJMS_{name}": value for name, value in properties.items()}},
        "message_type": "bytes",
        "sha256": "",
    }
    give_body(record, TINY_BODY)
    return record


TINY_REQUEST: Final = _tiny(
    "request",
    "s",
    {"message_id": "m1", "correlation_id": "c1", "reply_to": {"kind": "queue", "name": "r1"}},
    soapAction="urn:a",
)
TINY_RESPONSE: Final = _tiny("response", "r1", {"message_id": "m2", "correlation_id": "c1"}, isFault=False)
TINY_ONE_WAY: Final = _tiny("one-way", "s", {"message_id": "m1"}, soapAction="urn:a")
TINY_CALL: Final = (TINY_REQUEST, TINY_RESPONSE)


def hostile_call(random: Random) -> Exchange:
    """Make a call or a one-way message, each captured once, with at most three changes of anything in them."""
    records = [deepcopy(each) for each in random.choice((TINY_CALL, TINY_CALL, TINY_CALL, (TINY_ONE_WAY,)))]
    if random.random() < 0.5:
        edit, state = random.choice(TINY_BASES), random.random()
        for each in records:
            edit(Random(state), each)
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3))):
        changed_anyhow(random, random.choice(records))
    return [moved(each, number / 100) for number, each in enumerate(records)]


def hostile_group(random: Random) -> Exchange:
    """Make 2 to 6 records that are copies of each other, or a call, or nearly so."""
    make = random.choice((_alike, _confused, _confused))
    records = [make(random) for _ in range(random.choice((2, 3, 3, 3, 3, 4, 4, 4, 5, 6)))]
    times = TINY_TIMES if random.random() < 0.3 else TINY_TIMES[:5]
    return [moved(each, random.choice(times)) for each in records]


def _alike(random: Random) -> Members:
    """Make a record of a call that differs little from those of other calls."""
    record = deepcopy(random.choice((*TINY_CALL, *TINY_CALL, TINY_ONE_WAY)))
    while random.random() < 0.25:
        random.choice(TINY)(random, record)
    return record


def _confused(random: Random) -> Members:
    """Make a record of a call in which nothing that tells its messages apart is certain."""
    record = deepcopy(random.choice(TINY_CALL))
    jms = record["jms"]
    if random.random() < 0.3:
        jms["message_id"] = random.choice(("m1", "m2"))
    if random.random() < 0.3:
        over_stomp(random, record)
    if random.random() < 0.2:
        record["direction"] = random.choice(DIRECTIONS[:3])
    if random.random() < 0.2:
        jms["reply_to"] = random.choice((None, {"kind": "queue", "name": "r1"}))
    return record


def twice(path: Path, exchanges: Iterable[list[Members]]) -> Path:
    """Write a log in which exchanges recur with other ids: the second of each may be counted only."""
    records = [
        each
        for number, exchange in enumerate(exchanges)
        for turn in range(2)
        for each in renamed(exchange, f"{turn}.{number}.")
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return path


def vectors() -> Iterator[list[Members]]:
    """Yield the records of each case of each vector."""
    for vector in VECTORS.values():
        for case in vector["cases"]:
            yield [{**whole, "jms": whole.get("jms") or {}} for whole in map(members_of, case["records"])]


def renamed(records: Iterable[Members], prefix: str) -> Iterator[Members]:
    """Yield records with other ids, which keep their order and equality, so that they meet no others."""
    for each in records:
        ids = {
            name: f"{prefix}{value}" for name in ("message_id", "correlation_id") if (value := each["jms"].get(name))
        }
        yield {**each, "jms": {**each["jms"], **ids}}


# What differs in each exchange, and no rule reads


def exchange_number(record: Members, numbers: dict[str, int]) -> int:
    """Return the number of the exchange of a record, by its ids; new ones are added to `numbers`."""
    jms = record["jms"]
    return numbers.setdefault(jms.get("correlation_id") or jms.get("message_id"), len(numbers))


def give_trace(number: int, record: Members) -> None:
    """Give a message the id of a trace, as tracing clients do."""
    record["properties"]["traceparent"] = f"00-{number:032x}-{number:016x}-01"


def give_attachment(number: int, record: Members) -> None:
    """Put the envelope, if there is one alone, beside an attachment, with a boundary that no other body has."""
    text, kind = text_of(record), record["properties"].get("SOAPJMS_contentType")
    if text is None or kind is None or kind.startswith("multipart"):
        return
    media_type = kind.partition(";")[0]
    mark = f"uuid:{number:032x}"
    record["properties"]["SOAPJMS_contentType"] = f'multipart/related; boundary="{mark}"; type="{media_type}"'
    give_body(
        record,
        f"--{mark}\r\nContent-Type: {kind}\r\nContent-ID: <root>\r\n\r\n{text}\r\n"
        f"--{mark}\r\nContent-Type: text/plain\r\nContent-ID: <{number}>\r\n\r\nscan {number}\r\n--{mark}--\r\n",
    )


def give_attribute(number: int, record: Members) -> None:
    """Give the body an attribute that no other body has."""
    text = text_of(record)
    if text is not None and text.count("Body>") == 2:
        give_body(record, text.replace("Body>", f'Body n="{number}">', 1))


# Bodies in parts

_IN_PARTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        '<env:Envelope xmlns:env="{soap}"><env:Body><x>1</x></env:Body></env:Envelope>',
        (
            '<env:Envelope xmlns:env="{soap}"><env:Body><x>22</x></env:Body></env:Envelope>',
            '<env:Envelope xmlns:env="{soap}"><env:Body><x a="1">1</x></env:Body></env:Envelope>',
            '<env:Envelope xmlns:env="{soap}"><env:Body><x></env:Body></env:Envelope>',
            '<env:Envelope xmlns:env="http://www.w3.org/2003/05/soap-envelope"><env:Body/></env:Envelope>',
            "<?xml version='1.0' encoding='utf-8'?>"
            '<env:Envelope xmlns:env="{soap}"><env:Body><x>1</x></env:Body></env:Envelope>',
            "<?xml version='1.0' encoding='iso-8859-1'?>"
            '<env:Envelope xmlns:env="{soap}"><env:Body><x>1</x></env:Body></env:Envelope>',
            '<env:Envelope xmlns:env="{soap}"><env:Body><env:Fault><faultcode>env:Server</faultcode>'
            "<faultstring>no</faultstring></env:Fault></env:Body></env:Envelope>",
            "PGE+PC9hPg==",
            "",
        ),
    ),
    (
        "Content-Type: text/xml; charset=utf-8",
        (
            "Content-Type: text/xml",
            "Content-Type: text/xml; charset=iso-8859-1",
            "Content-Type: text/xml; charset=utf-8; charset=utf-8",
            "Content-Type: text/xml; charset=utf-8;",
            "Content-Type: application/soap+xml",
            'Content-Type: application/xop+xml; type="text/xml"',
            'Content-Type: application/xop+xml; type="text/xml"; action="urn:b"',
            "content-type: text/xml; charset=utf-8\r\nX: y",
            "Content-Type: text/xml; charset=utf-8\r\nContent-Transfer-Encoding: base64",
            "Content-Type: text/xml; charset=utf-8\r\nContent-Transfer-Encoding: 8bit",
            "Content-Type: text/xml; charset=utf-8\r\nContent-Transfer-Encoding: strange",
            "",
        ),
    ),
    ("Content-ID: <root>", ("Content-ID: root", "Content-ID: <other>", "Content-ID:", "X: <root>")),
    ("Content-ID: <one>", ("Content-ID: one", "Content-ID: <two>", "Content-ID: <root>", "Content-Location: a", "")),
    ("Content-Type: text/plain", ("Content-Type: image/png", "Content-Type: text/xml", "Content-Type")),
    ("a scan", ("another scan", "", "--b", "\r\n--b\r\n", "\r\n--b--\r\n", "<a>", "\x01\u00e9")),
    ("--b\r\n", ("--b \r\n", "--bb\r\n", "--b\n", "-b\r\n", "x--b\r\n")),
    ("--b--", ("--b-- ", "--b", "--b--\r\nmore", "--c--", "")),
)
"""Pieces of a body in parts, and what may stand in their place."""
_TYPES: Final = (
    'multipart/related; boundary=b; type="text/xml"',
    'multipart/related; boundary="b"; type="text/xml"; start="<root>"',
    'multipart/related; type="text/xml"; start="<one>"; boundary=b',
    "multipart/related; boundary=b; type=text/xml; start=root",
    'multipart/related; boundary=b; type="application/soap+xml"',
    'multipart/related; boundary=b; type="application/xop+xml"; start-info="text/xml"; action="urn:a"',
    'multipart/related; boundary=b; type="text/xml"; boundary=c',
    'multipart/related; boundary=c; type="text/xml"',
    'multipart/related; type="text/xml"',
    "multipart/related; boundary=b;",
    "multipart/related; boundary=b; =",
    'MULTIPART/Related ;Boundary=b ; type="text/xml"',
    'multipart/related; type="text/xml; boundary=b; x"',
    'multipart/related; type="text/xml\\"; boundary=b',
    'multipart/related; x="\\"; boundary=b; y="; type="text/xml"',
    'multipart/related; xboundary=b; type="text/xml"',
    'multipart/related; boundary="b"c; type="text/xml"',
    'multipart/related; boundary=b=c; type="text/xml"',
    'multipart/mixed; boundary=b; type="text/xml"',
    "text/xml; boundary=b",
)


def give_parts(random: Random, record: Members) -> None:
    """Give a message a body of two parts, with at most three changes of anything in it."""
    pieces = [piece for piece, _ in _IN_PARTS]
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        at = random.randrange(len(pieces))
        pieces[at] = random.choice(_IN_PARTS[at][1])
    document, kind, name, other_name, other_kind, content, delimiter, end = pieces
    document = document.replace("{soap}", SoapVersion.SOAP_11.namespace)
    heads = ["\r\n".join(filter(None, each)) for each in ((kind, name), (other_kind, other_name))]
    boundary = random.choice(("b", "b", "b", f"u{random.randrange(10**6)}"))
    body = f"{delimiter}{heads[0]}\r\n\r\n{document}\r\n{delimiter}{heads[1]}\r\n\r\n{content}\r\n{end}\r\n"
    stated = _TYPES[0] if random.random() < 0.6 else random.choice(_TYPES)
    record["properties"]["SOAPJMS_contentType"] = stated.replace("boundary=b", f"boundary={boundary}")
    if random.random() < 0.2:
        record["message_type"] = "text"
    give_body(record, body.replace("--b", f"--{boundary}"))


def hostile_parts(random: Random) -> Exchange:
    """Make a call or a one-way message whose bodies have parts."""
    records = [deepcopy(each) for each in random.choice((TINY_CALL, TINY_CALL, (TINY_ONE_WAY,)))]
    for each in records:
        if random.random() < 0.8:
            give_parts(random, each)
    if random.random() < 0.1:
        changed_anyhow(random, random.choice(records))
    return [moved(each, number / 100) for number, each in enumerate(records)]
