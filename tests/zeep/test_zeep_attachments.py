"""MTOM and SwA through zeep, out and in; on both kinds of broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zeep
from calling_kit import PATIENCE, SOAP_11, SOAP_12, OnEachBroker
from lxml import etree
from zeep.plugins import HistoryPlugin
from zeep.wsdl.attachments import MessagePack
from zeep_kit import NS, PICTURE, TYPES, gallery, gallery_wsdl, made, written

import soapjms
import soapjms.zeep
from brokers import Connection, MessageType
from brokers.embedded import Broker
from soapjms import Attachment, Dispatcher, Service, SoapVersion, UsageError
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.zeep import Client, JmsTransport, JmsTransportError

PHOTO = b"\x89PNG\r\n\x1a\n\x00\xff\r\n"


class TestAttachments(OnEachBroker):
    """Requests and responses of several parts."""

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    def test_mtom(
        self,
        connection: Connection,
        other: Connection,
        name: str,
        tmp_path: Path,
        version: SoapVersion,
        message_type: MessageType,
    ) -> None:
        """An attachment as a value is included, out; what is included is the value, in. Octets stay base64 text."""
        path = written(tmp_path, gallery_wsdl(f"jms:queue:{name}", version))
        photo = tmp_path / "photo.png"
        photo.write_bytes(PHOTO)
        options = {"message_type": message_type, "operation_timeout": PATIENCE}
        with (
            Dispatcher(other, f"jms:queue:{name}", gallery()),
            Client(path, connection=connection, **options) as client,
        ):
            for content in (PHOTO, memoryview(PHOTO), photo):
                said = client.service.frame("Dusk", Attachment(content, "image/png"))
                assert (said.body.title, said.body.picture) == (f"Dusk: {[PHOTO]}", b"[" + PHOTO + b"]")
            said = client.service.frame(title="Dusk", picture=[PHOTO])
            assert (said.body.title, said.body.picture) == ("Dusk: []", b"[" + PHOTO + b"]")

    def test_swa(self, connection: Connection, other: Connection, name: str, tmp_path: Path) -> None:
        """What is listed goes along; what comes along is in a MessagePack, as zeep has it for HTTP."""
        path = written(tmp_path, gallery_wsdl(f"jms:queue:{name}"))
        listed = [Attachment(b"one", "text/plain"), Attachment(b"two", "text/plain", "two@here")]
        with (
            Dispatcher(other, f"jms:queue:{name}", gallery()),
            JmsTransport(connection, operation_timeout=PATIENCE) as transport,
        ):
            for kind in (Client, zeep.Client):
                said = kind(str(path), transport=transport).service.frame("loud", _attachments=listed)
                assert isinstance(said, MessagePack)
                assert said.root.body.title == f"loud: {[b'one', b'two']}"
                (part,) = said.attachments
                assert (part.content, part.content_type, part.content_id) == (
                    b"loud\r\n",
                    "text/plain",
                    "<loud@gallery>",
                )
                assert part.headers["Content-Disposition"] == 'attachment; filename="a.txt"'
                assert said.get_by_content_id("<loud@gallery>").content == b"loud\r\n"


class Embedded:
    """A gallery on the embedded broker."""

    @pytest.fixture
    def connection(self) -> Iterator[Connection]:
        with Broker("gallery").connect() as connection, Dispatcher(connection, "jms:queue:gallery", gallery()):
            yield connection

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return written(tmp_path, gallery_wsdl())


class TestValues(Embedded):
    """Where an attachment may stand."""

    def test_in_objects_and_dictionaries(self, connection: Connection, path: Path) -> None:
        """At any depth; what the caller gave stays as it was."""
        photo = Attachment(PHOTO, "image/png", "mine@here")
        with Client(path, connection=connection) as client:
            work = client.type_factory(NS).Work(year=1889, scan=photo)
            given = {"year": 1889, "scan": photo}
            for value in (work, given):
                assert client.service.hang(value) == f"{PHOTO!r} 1"
            assert (work.scan, given["scan"]) == (photo, photo)
            with client.settings(raw_response=True):
                raw = client.service.hang(work)
        include = raw.jms.request.body
        assert b'<xop:Include xmlns:xop="http://www.w3.org/2004/08/xop/include" href="cid:mine@here"/>' in include

    def test_in_anything(self, connection: Connection, tmp_path: Path) -> None:
        """An object of any type, in the place of xs:anyType."""
        types = TYPES.replace('name="work" type="g:Work"', 'name="work" type="xs:anyType"')
        with Client(written(tmp_path, gallery_wsdl(types=types)), connection=connection) as client:
            work = client.get_type(f"{{{NS}}}Work")
            given = zeep.AnyObject(work, work(year=1889, scan=Attachment(PHOTO)))
            plain = zeep.AnyObject(work, work(year=1889, scan=PHOTO))
            assert client.service.hang(given) == f"{PHOTO!r} 1"
            assert client.service.hang(plain) == f"{PHOTO!r} 0"
            with pytest.raises(soapjms.zeep.JmsFaultError, match="the service failed"):
                client.service.hang("text, which has no scan")

    def test_several(self, connection: Connection, path: Path) -> None:
        """Each is one part, however often it is given; those listed too."""
        one, two = Attachment(b"one"), Attachment(b"one")
        three = Attachment(b"three", content_id="three@here")
        with Client(path, connection=connection) as client:
            said = client.service.frame("", [one, two, one, three], _attachments=[three, one, Attachment(b"four")])
        assert said.body.title == f": {[b'four', b'one', b'one', b'three']}"
        assert said.body.picture == b"[one]"

    def test_no_text_is_taken_for_an_attachment(self, connection: Connection, path: Path) -> None:
        """What marks the place of one is drawn anew for each call."""
        with Client(path, connection=connection) as client:
            for title in ("soapjms:1", "cid:three@here"):
                said = client.service.frame(title, Attachment(b"x"))
                assert said.body.title.startswith(title)

    def test_plugins_see_what_is_sent(self, connection: Connection, path: Path) -> None:
        """An `xop:Include`; not so where WS-Security has to see the content."""
        history = HistoryPlugin()
        with Client(path, connection=connection, plugins=[history]) as client:
            client.service.frame("Dusk", Attachment(PHOTO))
        (picture,) = history.last_sent["envelope"].iter(PICTURE)
        assert [each.tag for each in picture] == [XOP_INCLUDE]

    @pytest.mark.parametrize("anew", [False, True])
    def test_what_is_signed_is_the_content(self, connection: Connection, path: Path, anew: bool) -> None:
        """XOP says that an envelope is what it is without it; so base64 is there to be signed, and included after."""
        seen = []

        class Signing:
            def apply(self, envelope: Any, headers: Any) -> Any:
                seen.extend(each.text for each in envelope.iter(PICTURE))
                return (etree.fromstring(etree.tostring(envelope)) if anew else envelope), headers

            def verify(self, envelope: Any) -> None:
                seen.extend(each.text for each in envelope.iter(PICTURE))

        with Client(path, wsse=Signing(), connection=connection) as client:
            said = client.service.frame("Dusk", Attachment(b"\x01\x02"))
        assert seen == ["AQI=", "WwECXQ=="]
        assert (said.body.title, said.body.picture) == (f"Dusk: {[] if anew else [bytes([1, 2])]}", b"[\x01\x02]")

    def test_raw_response(self, connection: Connection, path: Path) -> None:
        """The whole body, with its content type."""
        with Client(path, connection=connection) as client, client.settings(raw_response=True):
            raw = client.service.frame("Dusk", Attachment(PHOTO))
        assert raw.headers["Content-Type"].startswith("multipart/related")
        assert raw.content == raw.jms.message.body


class TestMistakes(Embedded):
    """What cannot be sent or read."""

    @pytest.mark.parametrize("listed", [5, "abc", [b"abc"], {"a": Attachment(b"")}])
    def test_what_is_no_list_of_attachments(self, connection: Connection, path: Path, listed: Any) -> None:
        """It says what would be."""
        with (
            Client(path, connection=connection) as client,
            pytest.raises(UsageError, match=r"_attachments must be a list of soapjms\.Attachment, got "),
        ):
            client.service.frame("Dusk", _attachments=listed)

    def test_an_attachment_that_gets_nowhere(self, connection: Connection, path: Path) -> None:
        """As the value of an attribute, which is no element."""
        with (
            Client(path, connection=connection) as client,
            pytest.raises(UsageError, match="must be the content of an element of type xs:base64Binary"),
        ):
            client.service.hang({"year": 1, "by": Attachment(b"x")})

    def test_an_attachment_for_another_type(self, connection: Connection, path: Path) -> None:
        """A number is no picture."""
        with (
            Client(path, connection=connection) as client,
            pytest.raises(UsageError, match=r"hang: hang\.work\.year must be of type int, got an attachment; it takes"),
        ):
            client.service.hang({"year": Attachment(b"1889")})

    def test_a_file_that_is_not_there(self, connection: Connection, path: Path, tmp_path: Path) -> None:
        """The error names it; nothing is sent."""
        with Client(path, connection=connection) as client, pytest.raises(UsageError, match="No such file"):
            client.service.frame("Dusk", Attachment(tmp_path / "none.png"))

    def test_a_reference_to_nothing(self, connection: Connection, path: Path) -> None:
        """In a response: a typed error."""
        lost = Attachment(b"", content_id="lost@gallery")
        body = made("framed", title="x")
        etree.SubElement(body, PICTURE).append(lost.include())
        service = Service()
        service.operation(f"{{{NS}}}frame")(lambda request: body)
        with (
            Broker("lost").connect() as other,
            Dispatcher(other, "jms:queue:gallery", service),
            Client(path, connection=other) as client,
            pytest.raises(JmsTransportError, match=r"the response to frame does not fit the WSDL: .*lost@gallery"),
        ):
            client.service.frame("Dusk")
