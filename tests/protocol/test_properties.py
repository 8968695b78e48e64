"""The binding properties: their one table, precedence with origin, values that are refused."""

from __future__ import annotations

import pickle
from itertools import combinations
from typing import Any

import pytest

from soapjms.protocol.errors import InvalidPropertyError
from soapjms.protocol.properties import (
    BINDING_PROPERTIES,
    EXCLUDED,
    MUST_EXCLUDE,
    Effective,
    Group,
    Origin,
    Source,
    Treatment,
    read_value,
    request_uri,
    resolve,
    row_of,
    shown,
)
from soapjms.protocol.uri import parse
from soapjms.protocol.values import Value, uncarried

VALUES = {
    Origin.ENVIRONMENT: "1",
    Origin.URI: "2",
    Origin.PORT: "3",
    Origin.SERVICE: "5",
    Origin.BINDING: "6",
}


def resolved(origins: tuple[Origin, ...], name: str = "priority", values: dict[Origin, str] = VALUES) -> Effective:
    """Set one property at each of `origins`, to the value that stands for it."""
    query = f"?{name}={values[Origin.URI]}" if Origin.URI in origins else ""
    return resolve(
        parse(f"jms:queue:q{query}"),
        {name: values[Origin.ENVIRONMENT]} if Origin.ENVIRONMENT in origins else {},
        {
            each: {name: values[each]}
            for each in (Origin.PORT, Origin.SERVICE, Origin.BINDING)
            if each in origins
        },
    )  # fmt: skip


# Precedence


@pytest.mark.parametrize(("winner", "loser"), list(combinations(VALUES, 2)))
def test_precedence_of_every_pair(winner: Origin, loser: Origin) -> None:
    """Protocol-2001, WSDLUsage-3002, 3003: environment, URI, port, service, binding; a value says its origin."""
    assert resolved((loser, winner))["priority"] == (int(VALUES[winner]), winner)


@pytest.mark.parametrize("origin", VALUES)
def test_anything_wins_over_the_default(origin: Origin) -> None:
    """A value that somebody set is stated; the default holds only where nobody did."""
    assert resolved((origin,))["priority"] == (int(VALUES[origin]), origin)
    assert resolved((origin,)).stated("priority") == int(VALUES[origin])


def test_all_origins_at_once() -> None:
    """With a value everywhere the environment's counts."""
    assert resolved(tuple(VALUES))["priority"].origin is Origin.ENVIRONMENT


def test_defaults() -> None:
    """Persistent, no end of life, priority 4, version 1.0, no fault; a default is a value, but nobody stated it."""
    effective = resolve()
    assert {name: entry.value for name, entry in effective.items()} == {
        "deliveryMode": 2,
        "timeToLive": 0,
        "priority": 4,
        "bindingVersion": "1.0",
        "isFault": False,
    }
    assert {entry.origin for entry in effective.values()} == {Origin.DEFAULT}
    assert effective.value("priority") == 4
    assert effective.stated("priority") is None
    assert effective.value("replyToName") is None
    assert effective.stated("replyToName") is None


def test_the_last_of_a_repeated_parameter_counts() -> None:
    """Protocol-2002: of a repeated URI parameter the last occurrence counts."""
    assert resolve(parse("jms:queue:q?priority=1&priority=2")).value("priority") == 2


def test_environment_may_give_values_as_their_type() -> None:
    """A program sets numbers as numbers; they are held to the same rules as text."""
    effective = resolve(environment={"priority": 9, "timeToLive": 5000, "deliveryMode": "NON_PERSISTENT"})
    assert (effective.value("priority"), effective.value("timeToLive"), effective.value("deliveryMode")) == (9, 5000, 1)


def test_uri_gives_variant_and_destination() -> None:
    """lookupVariant and destinationName are parts of the URI; parameters with these names are custom ones."""
    effective = resolve(parse("jms:topic:prices?lookupVariant=jndi&destinationName=other"))
    assert effective["lookupVariant"] == ("topic", Origin.URI)
    assert effective["destinationName"] == ("prices", Origin.URI)
    assert "lookupVariant" not in resolve(parse("jms:?lookupVariant=jndi"))


def test_custom_parameters_are_no_binding_properties() -> None:
    """A custom parameter may have any name, that of a property that the URI cannot set among them."""
    effective = resolve(parse("jms:queue:q?userprop=x&bindingVersion=2.0&soapAction=y&contentType=z&jndi-=w"))
    assert effective.value("bindingVersion") == "1.0"
    assert not {"userprop", "soapAction", "contentType", "jndi-"} & set(effective)


def test_jndi_family() -> None:
    """Each `jndi-` name is a property of its own."""
    effective = resolve(parse("jms:jndi:q?jndi-a=1&jndi-b=2"), {"jndi-b": "3"})
    assert effective["jndi-a"] == ("1", Origin.URI)
    assert effective["jndi-b"] == ("3", Origin.ENVIRONMENT)
    assert row_of("jndi-a") is row_of("jndi-")
    assert row_of("nonsense") is None


ALIASES = [
    ("jndi-java.naming.provider.url", "jndiURL"),
    ("jndi-java.naming.factory.initial", "jndiInitialContextFactory"),
]


@pytest.mark.parametrize("pair", ALIASES)
@pytest.mark.parametrize(("winner", "loser"), list(combinations(VALUES, 2)))
def test_two_names_of_one_setting(pair: tuple[str, str], winner: Origin, loser: Origin) -> None:
    """Protocol-2001: the stronger level wins whichever of the names it uses; the loser stays visible."""
    for strong, weak in (pair, pair[::-1]):
        values = {winner: {strong: "a"}, loser: {weak: "b"}}
        query = "".join(f"?{name}={value}" for name, value in values.get(Origin.URI, {}).items())
        wsdl = {each: values[each] for each in values if each not in (Origin.ENVIRONMENT, Origin.URI)}
        effective = resolve(parse(f"jms:jndi:q{query}"), values.get(Origin.ENVIRONMENT, {}), wsdl)
        assert effective[strong] == ("a", winner)
        assert weak not in effective
        assert effective.overridden == {weak: [("b", loser)]}


@pytest.mark.parametrize(("alias", "own"), ALIASES)
def test_two_names_on_one_level(alias: str, own: str) -> None:
    """The property's own name wins over the entry of the JNDI environment, over what a weaker level says too."""
    effective = resolve(parse(f"jms:jndi:q?{own}=a&{alias}=b"), {}, {Origin.PORT: {own: "c", alias: "d"}})
    assert effective[own] == ("a", Origin.URI)
    assert effective.overridden == {own: [("c", Origin.PORT)], alias: [("b", Origin.URI), ("d", Origin.PORT)]}
    assert resolve(environment={own: "a", alias: "b"}).overridden == {alias: [("b", Origin.ENVIRONMENT)]}


# Reply names


@pytest.mark.parametrize(
    ("uri", "environment", "wsdl", "kept"),
    [
        ("jms:queue:q?topicReplyToName=t", {}, {}, True),
        ("jms:topic:q?topicReplyToName=t", {}, {}, True),
        ("jms:jndi:q?topicReplyToName=t", {}, {}, False),
        ("jms:queue:q?topicReplyToName=t", {"replyToName": "r"}, {}, False),
        ("jms:queue:q?topicReplyToName=t", {}, {Origin.BINDING: {"replyToName": "r"}}, False),
        ("jms:queue:q?replyToName=r", {"topicReplyToName": "t"}, {}, False),
        ("jms:queue:q", {}, {Origin.PORT: {"topicReplyToName": "t"}}, True),
        ("jms:queue:q", {}, {Origin.PORT: {"topicReplyToName": "t"}, Origin.SERVICE: {"replyToName": "r"}}, False),
    ],
)
def test_topic_reply_name(uri: str, environment: dict[str, Value], wsdl: dict[Origin, Any], kept: bool) -> None:
    """SOAP/JMS 2.2.2: topicReplyToName is ignored with the variant jndi, and where replyToName is set anywhere."""
    effective = resolve(parse(uri), environment, wsdl)
    assert ("topicReplyToName" in effective) is kept
    assert ("topicReplyToName" in effective.overridden) is not kept


def test_both_reply_names_in_one_uri() -> None:
    """RFC 6167 4.3.1: they exclude each other; the refusal shows both."""
    with pytest.raises(InvalidPropertyError, match="replyToName is 'r' and topicReplyToName is 't' in one URI"):
        resolve(parse("jms:queue:q?topicReplyToName=t&replyToName=r"))


@pytest.mark.parametrize("origin", [each for each in VALUES if each is not Origin.URI])
def test_both_reply_names_on_one_level(origin: Origin) -> None:
    """SOAP/JMS 2.2.2: what the URI may not say at once no other level may; the refusal names values, place and rule."""
    both: dict[str, Any] = {"replyToName": "a", "topicReplyToName": "b"}
    with pytest.raises(InvalidPropertyError) as refused:
        resolve(parse("jms:queue:q"), both if origin is Origin.ENVIRONMENT else {}, {origin: both})
    assert str(refused.value) == (
        f"replyToName is 'a' and topicReplyToName is 'b' in one {origin}; "
        "accepted is one of them (SOAP/JMS 2.2.2, RFC 6167 4.3.1)"
    )


# Conflicts


def test_what_is_overridden_stays_visible() -> None:
    """Each value that was set and does not count is there with its origin, the stronger ones first."""
    effective = resolved(tuple(VALUES))
    assert effective.overridden == {"priority": [(int(VALUES[each]), each) for each in list(VALUES)[1:]]}
    assert resolved((Origin.PORT,)).overridden == {}
    copied = pickle.loads(pickle.dumps(effective))
    assert (copied, copied.overridden) == (effective, effective.overridden)


def test_values_are_shown_as_people_write_them() -> None:
    """A delivery mode by its name, the rest as it is."""
    assert [shown("deliveryMode", each) for each in (1, 2)] == ["NON_PERSISTENT", "PERSISTENT"]
    assert (shown("priority", 4), shown("jndi-x", "y"), shown("unknown", 1)) == (4, "y", 1)


# Refused values


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("deliveryMode", "persistent", "PERSISTENT or NON_PERSISTENT"),
        ("deliveryMode", "2", "PERSISTENT or NON_PERSISTENT"),
        ("priority", "10", "an integer from 0 to 9"),
        ("priority", "", "an integer from 0 to 9"),
        ("priority", "٣", "an integer from 0 to 9"),
        ("timeToLive", "-1", "milliseconds"),
        ("timeToLive", "1.5", "milliseconds"),
        ("timeToLive", "٣", "milliseconds"),
        ("timeToLive", "9223372036854775808", "below 2 to the 63"),
    ],
)
@pytest.mark.parametrize("origin", VALUES)
def test_bad_values_are_refused_wherever_they_stand(name: str, value: str, rule: str, origin: Origin) -> None:
    """The refusal names the property, the value, the place and what is accepted."""
    with pytest.raises(InvalidPropertyError) as refused:
        resolved((origin,), name, dict.fromkeys(VALUES, value))
    for said in (name, repr(value), str(origin), rule, "SOAP/JMS 2.2.2"):
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("priority", "0", 0),
        ("priority", "07", 7),
        ("timeToLive", "9223372036854775807", (1 << 63) - 1),
        ("timeToLive", "0", 0),
        ("deliveryMode", "PERSISTENT", 2),
        ("isFault", "true", True),
        ("isFault", "1", True),
        ("isFault", "0", False),
        ("replyToName", " as it is ", " as it is "),
    ],
)
def test_values_at_the_edge(name: str, text: str, value: Value) -> None:
    """What the type of a property allows is read as that type."""
    assert read_value(name, text, Origin.ENVIRONMENT) == value


def test_bad_value_below_a_good_one() -> None:
    """A bad value is refused even where another source wins: it is a mistake of somebody."""
    with pytest.raises(InvalidPropertyError, match="priority is '11' in binding"):
        resolve(environment={"priority": 4}, wsdl={Origin.BINDING: {"priority": "11"}})


@pytest.mark.parametrize(
    ("name", "environment", "wsdl", "said"),
    [
        ("bindingVersion", {"bindingVersion": "1.0"}, {}, "nowhere: the binding sets it"),
        ("isFault", {"isFault": True}, {}, "nowhere: the binding sets it"),
        ("destinationName", {"destinationName": "q"}, {}, "may be set in: URI"),
        ("targetService", {}, {Origin.PORT: {"targetService": "s"}}, "in port"),
        ("soapAction", {}, {Origin.BINDING: {"soapAction": "s"}}, "attribute of a WSDL's SOAP operation"),
    ],
)
def test_properties_in_the_wrong_place(
    name: str, environment: dict[str, Value], wsdl: dict[Origin, dict[str, str]], said: str
) -> None:
    """A property set where the specification does not have it is refused, and told where it may stand."""
    with pytest.raises(InvalidPropertyError) as refused:
        resolve(parse("jms:queue:q"), environment, wsdl)
    assert str(refused.value).startswith(f"{name} is set in")
    assert said in str(refused.value)


def test_a_truth_is_no_number() -> None:
    """True is not taken for priority 1."""
    with pytest.raises(InvalidPropertyError, match="priority is 'true' in environment"):
        resolve(environment={"priority": True})


def test_unknown_property() -> None:
    """A name that is no binding property is refused, and told those there are."""
    with pytest.raises(InvalidPropertyError, match=r"'prority' in environment \(did you mean priority\?\); known"):
        resolve(environment={"prority": 4})
    with pytest.raises(InvalidPropertyError, match=r"'colour' in service; known are: lookupVariant"):
        resolve(wsdl={Origin.SERVICE: {"colour": "4"}})
    with pytest.raises(InvalidPropertyError, match=r"did you mean timeToLive\?"):
        resolve(environment={"timetolive": 4})


# The table


def test_request_uri() -> None:
    """SOAP/JMS 2.2.4: the requestURI keeps variant, destination and custom parameters, in order."""
    supplied = parse("jms:queue:q?b=2&priority=1&targetService=s&jndi-x=y&a=1&replyToName=r")
    assert request_uri(supplied) == "jms:queue:q?b=2&a=1"


def test_treatment_in_the_request_uri() -> None:
    """SOAP/JMS 2.2.4: targetService and replyToName MUST go, connection and header properties SHOULD."""
    assert {"targetService", "replyToName"} == MUST_EXCLUDE
    assert {
        "deliveryMode", "timeToLive", "priority", "topicReplyToName",
        "jndiConnectionFactoryName", "jndiInitialContextFactory", "jndiURL", "jndi-",
    } == EXCLUDED - MUST_EXCLUDE  # fmt: skip


@pytest.mark.parametrize("row", list(BINDING_PROPERTIES.values()), ids=lambda row: row.name)
def test_rows_hold_together(row: Any) -> None:
    """Every row is of one group, says what it becomes, and has a treatment exactly if the URI may hold it."""
    assert (row.treatment is Treatment.NOT_IN_URI) is (Source.URI not in row.sources)
    assert (row.message_property is not None) is (row.group is Group.MESSAGE)
    if row.group is Group.HEADER:
        assert row.header
        assert row.carriers
    if row.message_property is not None:
        assert row.message_property == "SOAPJMS_" + row.name


def test_each_carried_property_once() -> None:
    """All three messages carry requestURI, bindingVersion and contentType; only a response carries isFault."""
    carried: dict[str, set[str]] = {}
    for row in BINDING_PROPERTIES.values():
        if row.message_property:
            for carrier in row.carriers:
                carried.setdefault(carrier.value, set()).add(row.name)
    common = {"requestURI", "bindingVersion", "contentType", "contentEncoding"}
    assert carried["response"] == common | {"isFault"}
    assert carried["request"] == carried["one-way"] == common | {"soapAction", "targetService"}


def test_what_looks_like_a_secret_is_not_sent() -> None:
    """A URI must carry none; one that does anyway keeps it to itself (RFC 6167 4.4, SOAP/JMS 2.2.4)."""
    assert request_uri(parse("jms:queue:q?password=hunter2&a=1&accessToken=x")) == "jms:queue:q?a=1"


@pytest.mark.parametrize(
    ("text", "why"), [("a\0b", "NUL at 1"), ("a\ud800", "half of a surrogate pair, '\\ud800', at 1")]
)
def test_texts_that_nothing_carries(text: str, why: str) -> None:
    """No header and no property of a message carries these over every protocol."""
    assert uncarried(text) == why
    with pytest.raises(InvalidPropertyError):
        resolve(environment={"targetService": text})


def test_texts_that_all_carry() -> None:
    """Anything else is carried."""
    assert uncarried("a\n\u20ac\U0001f600") is None
