"""Secrets in forms that a mask might miss."""

from __future__ import annotations

from base64 import b64decode, b64encode, encodebytes
from time import process_time

import pytest

from brokers import Message, MessageType, properties
from brokers.message import Element, Properties, Property, PropertyType
from soapjms.capture.mask import Mask, looks_secret
from soapjms.protocol.uri.redact import is_secret_name

SECRET = "s3cret"
ELEMENT = f"<e:Password Type='x'>{SECRET}</e:Password><Name>Ann</Name>"


WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("codec", WIDE)
@pytest.mark.parametrize(
    "before", [b"", b"\n\x00", b"\x00\n", b"--b\r\nContent-Type: text/xml\r\n\r\n", b"--b\r\n\r\n.\r\n\r\n"]
)
def test_wide_parts(codec: str, before: bytes) -> None:
    """UTF-16 in a part of several, or behind a line break, as everywhere."""
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=before + ELEMENT.encode(codec)))
    assert SECRET.encode(codec) not in bytes(made.message.body)  # type: ignore[arg-type]
    assert "Ann".encode(codec) in bytes(made.message.body)  # type: ignore[arg-type]
    assert made.what == ("element Password",)


@pytest.mark.parametrize("attributes", ["Type='a/>'", 'Type="a/>"', 'a="/" b="/>"', "a='it\"s' b='/>'"])
def test_attributes_that_look_like_an_end(attributes: str) -> None:
    """What is quoted ends no tag."""
    made = Mask().apply(Message(message_type=MessageType.TEXT, body=f"<Password {attributes}>{SECRET}</Password>"))
    assert made.message.body == f"<Password {attributes}>***</Password>"


@pytest.mark.parametrize("scheme", ["jms", "JMS", "Jms"])
def test_properties_that_hold_secrets(scheme: str) -> None:
    """Whatever they are called: elements in their text, and what a jms: URI has for JNDI or of a broker's login."""
    uri = f"{scheme}:jndi:q?jndiURL=tcp://ann:{SECRET}@host:1&java.naming.security.credentials={SECRET}&priority=4"
    held = properties({"note": ELEMENT, "SOAPJMS_requestURI": uri, "plain": "a < b", "other": "jms:queue:q?priority=4"})
    made = Mask().apply(Message(message_type=MessageType.TEXT, body="x", properties=held))
    said = {each.name: each.value for each in made.message.properties}
    assert SECRET not in str(said)
    assert "priority=4" in str(said["SOAPJMS_requestURI"])
    assert (said["plain"], said["other"]) == ("a < b", "jms:queue:q?priority=4")
    assert made.what == ("property SOAPJMS_requestURI", "property note")


def test_map_messages() -> None:
    """Entries by their names, and elements in the text of others."""
    body = properties({"password": SECRET, "Password": SECRET, "xml": ELEMENT, "name": "Ann", "number": 7})
    made = Mask().apply(Message(message_type=MessageType.MAP, body=body))
    assert SECRET not in str(made.message.body)
    assert made.message.body.lookup("name").value == "Ann"  # type: ignore[union-attr]
    assert made.what == ("entry password", "entry Password", "element Password")


@pytest.mark.parametrize("codec", ["utf-8", "utf-16", *WIDE])
@pytest.mark.parametrize(
    "attributes", ["Type='a/>'", 'Type="a/>"', 'a="/" b="/>"', "a='it\"s' b='/>'", "a='>' b=\"/>\"", "a=it's", "a='"]
)
@pytest.mark.parametrize("before", ["", "--b\r\n\r\n<?xml version='1.0'?>"])
def test_attributes_in_any_encoding(attributes: str, codec: str, before: str) -> None:
    """Nor in UTF-16, in a part of several either."""
    text = f"<a><Password {attributes}>{SECRET}</Password><Name>Ann</Name></a>"
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=before.encode() + text.encode(codec)))
    said = bytes(made.message.body or b"")  # type: ignore[arg-type]
    assert not any(SECRET.encode(each) in said for each in ("utf-8", *WIDE))
    assert made.is_cut or any("Ann".encode(each) in said for each in ("utf-8", *WIDE))
    assert made.what


def test_element_without_content() -> None:
    """An element that ends at once has nothing to hide, in UTF-16 either."""
    for codec in ("utf-8", "utf-16-le"):
        body = "<a><Password Type='a'/><Name>Ann</Name></a>".encode(codec)
        assert Mask().apply(Message(message_type=MessageType.BYTES, body=body)).what == ()


LIKE = (
    "<newPassword>",
    "<newPassword><![CDATA[",
    "<newPassword><![CDATA[]]>",
    "<newPassword> <!-- <newPassword>",
    "&lt;newPassword&gt;&lt;!",
    " newPassword",
    "newPassword",
    " newPassword='",
    " newPassword=&#39;",
    " newPassword =",
    "://",
    "://ann:",
    "://&",
)


def test_time() -> None:
    """A body full of beginnings is looked through once, whatever is quoted."""
    apart = ["<Password>", "<Password><![CDATA[", "<Password><!--", "<Password><?"]
    for text in (*apart, "<Password ", "<Password a='", '<Password a="x"', "<Password a='/>", *LIKE):
        for codec in ("utf-8", *WIDE):
            body = (text * 20_000).encode(codec)
            before = process_time()
            Mask().apply(Message(message_type=MessageType.BYTES, body=body))
            assert process_time() - before < 10


def test_stream_messages() -> None:
    """Elements in the texts of a StreamMessage."""
    body = (Element(PropertyType.STRING, "Ann"), Element(PropertyType.STRING, ELEMENT), Element(PropertyType.INT, 7))
    made = Mask().apply(Message(message_type=MessageType.STREAM, body=body))
    assert SECRET not in str(made.message.body)
    assert made.message.body[0] == body[0]  # type: ignore[index]
    assert made.message.body[2] == body[2]  # type: ignore[index]
    assert made.what == ("element Password",)
    plain = Message(message_type=MessageType.STREAM, body=body[::2])
    assert Mask().apply(plain).message is plain


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Cookie",
        "apiKey",
        "api_key",
        "X-Api-Key",
        "jwt",
        "pwd",
        "Set-Cookie",
        "bearer",
        "passphrase",
        "x-auth",
        "sessionId",
        "user_name",
        "authorisation",
        "otp",
        "PIN",
        "java.naming.security.principal",
        "userPrincipal",
        "principals",
        "principalId",
        "principal_name",
        "passwd",
        "pass_word",
        "passcode",
        "cardPin",
        "userPIN",
        "smsOtp",
        "OTPCode",
        "pinBlock",
        "pin_block",
        "cardPinBlock",
        "PINCODE",
    ],
)
def test_names_of_secrets(name: str) -> None:
    """These are called as secrets are, in captures as well as in URIs."""
    assert looks_secret(name)
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "principalAmount",
        "principal_amount",
        "principalsAmount",
        "shipping",
        "maxAuthors",
        "stoppage",
        "bypass_warning",
        "bypass-week",
        "overpass.width",
        "cardPinned",
        "SPINCODE",
        "pinned",
    ],
)
def test_names_of_no_secrets(name: str) -> None:
    """What contains such a word by chance is shown."""
    assert not looks_secret(name)
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["NewPassword", "x:oldPassword", "passwordConfirmation", "PasswordText", "userPwd", "pass-phrase", "Passwort2"],
)
@pytest.mark.parametrize("codec", ["utf-8", "utf-16", *WIDE])
@pytest.mark.parametrize(
    "form",
    [
        "<{0}>{1}</{0}>",
        "<{0} a='>'><![CDATA[{1}</]]>{1}</{0}>",
        "<{0}>{1}",
        "&lt;{0}&gt;{1}&lt;/{0}&gt;",
        "&lt;{0} b=&quot;c&quot;&gt;&lt;![CDATA[{1}]]&gt;&lt;/{0}&gt;",
        "<user {0}='{1}' b='c'/>",
        '<user\n{0} = "\'{1}>"></user>',
        "&lt;user {0}=&#39;{1}&amp;&#39;/&gt;",
    ],
)
def test_names_like_passwords(form: str, name: str, codec: str) -> None:
    """Elements and attributes whose names hold a word for a password, in all the forms that `Password` may have."""
    text = f"<n>Ann</n><p>{form.format(name, SECRET)}</p><n>Eve</n>"
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=b"--b\r\n\r\n" + text.encode(codec)))
    said = bytes(made.message.body)[7:].decode(codec)  # type: ignore[arg-type]
    assert SECRET not in said
    assert all(each in said for each in ("<n>Ann</n>", "***", "<n>Eve</n>"))
    assert made.what == ("attribute like Password" if "user" in form else "element like Password",)


@pytest.mark.parametrize(
    "text",
    [
        "<passwordExpiryDays>30</passwordExpiryDays><PasswordPolicy>strict</PasswordPolicy>",
        "<a passwordExpired='true' minPasswordLength='8' password_changed='2026' pass='1' passenger='2'/>",
        "<changePassword>\n<user>ann</user><pass>boarding</pass></changePassword>",
        "&lt;changePassword&gt; &lt;user&gt;ann&lt;/user&gt;&lt;/changePassword&gt;",
        "<NewPassword/><OldPassword></OldPassword><OtherPassword> </OtherPassword>",
        "<p:user xmlns:pwd='urn:pwd'><pwd:name pwd:id='1'>ann</pwd:name></p:user>",
        "<a type='password' name=\"password\">password</a>",
    ],
)
def test_names_unlike_passwords(text: str) -> None:
    """What only tells something about a password is shown, and so are the children of an operation."""
    plain = Message(message_type=MessageType.TEXT, body=text)
    assert Mask().apply(plain).message is plain


LOGINS = [
    ("http://ann:s3cret@host/a", "http://***@host/a"),
    ("see 'stomp+ssl://ann:s3cret@host:1?a=b'.", "see 'stomp+ssl://***@host:1?a=b'."),
    ("tcp://a:1,tcp://ann:a@s3cret&amp;@b:2", "tcp://a:1,tcp://***@b:2"),
    ("https://s3cret@host", "https://***@host"),
]


@pytest.mark.parametrize("codec", ["utf-8", *WIDE])
@pytest.mark.parametrize(("text", "shown"), LOGINS)
def test_logins_in_urls(text: str, shown: str, codec: str) -> None:
    """In bodies, properties and entries, whatever their names."""
    body = "--b\r\n\r\n<endpoint url='{0}'>{0}</endpoint>"
    asked = Message(
        message_type=MessageType.BYTES, body=body.format(text).encode(codec), properties=properties({"next": text})
    )
    made = Mask().apply(asked)
    assert made.message.body == body.format(shown).encode(codec)
    assert made.message.properties.value("next") == shown
    assert made.what == ("property next", "login in URL")
    entries = Message(message_type=MessageType.MAP, body=properties({"next": text}))
    assert Mask().apply(entries).message.body == properties({"next": shown})


@pytest.mark.parametrize(
    "text",
    [
        "http://host:80/a@b",
        "http://host?mail=ann@host",
        "http://[::1]:80/ ann@host",
        "<a href='http://host'>ann@host</a>",
        "mailto:ann@host cid:a@host",
        "jms:jndi:q?jndiURL=tcp://host:61616&amp;mail=ann@host",
    ],
)
def test_urls_without_logins(text: str) -> None:
    """An `@` elsewhere is none of a login."""
    plain = Message(message_type=MessageType.TEXT, body=text, properties=properties({"next": text}))
    assert Mask().apply(plain).message is plain


LT, GT = ("&lt;", "&#60;", "&#x3C;", "&amp;lt;"), (">", "&gt;", "&#062;", "&amp;gt;")


@pytest.mark.parametrize("lt", LT)
@pytest.mark.parametrize("gt", GT)
@pytest.mark.parametrize("codec", ["utf-8", *WIDE])
def test_escaped_documents(lt: str, gt: str, codec: str) -> None:
    """A document that is the text of an element: what comes after its element, and after the text, stays."""
    inner = f"{lt}w:Password Type=&quot;t&quot;{gt}{SECRET}&amp;{SECRET}{lt}/w:Password{gt}"
    text = f"<a>{inner}{lt}Name{gt}Ann</a><b>{lt}password{gt}{SECRET}</b><c>{lt}Password/{gt}Eve</c>"
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=f"--b\r\n\r\n{text}".encode(codec)))
    said = bytes(made.message.body).decode(codec)  # type: ignore[arg-type]
    assert SECRET not in said
    assert all(each in said for each in ("Ann</a>", "***</b>", "Eve</c>"))
    assert made.what == ("element Password",)
    kept = Message(message_type=MessageType.TEXT, body="x", properties=properties({"xml": text}))
    assert SECRET not in str(Mask().apply(kept).message.properties)


@pytest.mark.parametrize("codec", ["utf-8", *WIDE])
@pytest.mark.parametrize(
    "content",
    [
        f"<![CDATA[</Password>{SECRET}]]>",
        f"<![CDATA[<a/>]]></b><!-- </Password> -->{SECRET}",
        f"<?a </Password>?>{SECRET}",
        f"<a>{SECRET}</a>",
        f"<![CDATA[</Password>{SECRET}",
    ],
)
def test_end_tags_that_are_none(content: str, codec: str) -> None:
    """An end tag within CDATA, a comment or an instruction ends no element."""
    text = f"--b\r\n\r\n<a><Password>{content}</Password><Name>Ann</Name></a>"
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=text.encode(codec)))
    said = bytes(made.message.body)  # type: ignore[arg-type]
    assert SECRET.encode(codec) not in said
    assert "]]>" not in content or "Ann".encode(codec) in said
    assert made.what == ("element Password",)


@pytest.mark.parametrize("codec", ["utf-8", *WIDE])
@pytest.mark.parametrize("name", ["password", "PASSWORD", f"{'p' * 500}:Password"])
def test_names_of_the_element(name: str, codec: str) -> None:
    """However it is capitalised, and however long its prefix is."""
    body = b"--b\r\n\r\n" + f"<a><{name}>{SECRET}</{name}><Name>Ann</Name></a>".encode(codec) + b"\r\n--b--"
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=body))
    said = bytes(made.message.body)  # type: ignore[arg-type]
    assert SECRET.encode(codec) not in said
    assert "Ann".encode(codec) in said


def test_beside_what_is_no_text() -> None:
    """What is no text stays octet by octet, on both sides of what is hidden."""
    for codec in WIDE:
        for before in range(8):
            binary = b"\xdc\x00\xd8\xff\xfe" * 7 + bytes(range(256))
            body = b"x" * before + binary + ELEMENT.encode(codec) + binary
            made = Mask().apply(Message(message_type=MessageType.BYTES, body=body))
            assert made.message.body == body.replace(SECRET.encode(codec), "***".encode(codec))


@pytest.mark.parametrize("codec", ["utf-8", *WIDE])
@pytest.mark.parametrize(
    "header",
    [
        b"Content-Transfer-Encoding: base64",
        b"content-transfer-ENCODING:\r\n BaSe64",
        b"Content-Transfer-Encoding:\n\t\r\n base64\r\nX-Long: " + b"x" * 4000 + b"\r\nX-Short: x" * 60,
    ],
)
def test_base64(header: bytes, codec: str) -> None:
    """Parts in base64, octets of maps and streams, and text there that is base64."""
    packed = b64encode(ELEMENT.encode(codec))
    lines = encodebytes(ELEMENT.encode(codec) * 5).replace(b"\n", b"\r\n")
    for each in (packed, lines):
        head = b"--b\r\nContent-Type: text/xml\r\n" + header + b"\r\nContent-ID: <a>\r\n\r\n"
        made = Mask().apply(Message(message_type=MessageType.BYTES, body=head + each + b"\r\n--b--"))
        said = bytes(made.message.body)  # type: ignore[arg-type]
        assert said.startswith(head)
        assert said.endswith(b"--b--")
        hidden = b64decode(said[len(head) : -len(b"--b--")])
        assert SECRET.encode(codec) not in hidden
        assert "Ann".encode(codec) in hidden
        assert made.what == ("element Password",)
    for kind in (PropertyType.BYTES, PropertyType.STRING):
        entries = (Element(kind, packed.decode()), Element(kind, "QUJD"))
        stream = Mask().apply(Message(message_type=MessageType.STREAM, body=entries)).message.body
        assert stream[1] == entries[1]  # type: ignore[index]
        assert SECRET.encode(codec) not in b64decode(stream[0].value)  # type: ignore[index, arg-type]
        held = Properties([Property("xml", kind, packed.decode())])
        of_map = Mask().apply(Message(message_type=MessageType.MAP, body=held)).message.body
        assert SECRET.encode(codec) not in b64decode(of_map.lookup("xml").value)  # type: ignore[union-attr]


def test_headers_of_parts_take_linear_time() -> None:
    """A body full of headers of parts is looked through once."""
    for text in (
        b"Content-Transfer-Encoding: base64\r\n",
        b"Content-Transfer-Encoding: base64\r\n\r\n",
        b"base64",
        b"Content-Transfer-Encoding: base64 ",
    ):
        before = process_time()
        Mask().apply(Message(message_type=MessageType.BYTES, body=text * 30_000))
        assert process_time() - before < 10
