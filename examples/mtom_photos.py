"""Attachments with MTOM: a service gets a photo and sends it back framed; the octets travel unencoded.

python examples/mtom_photos.py [stomp://admin:admin@localhost:61613 PHOTO FRAMED]

PHOTO is the file to send, FRAMED the file to write the answer to. Without them it sends a small photo of its own,
over the embedded broker.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lxml import etree

import soapjms

NAMESPACE = "urn:photos"
URI = "jms:queue:photos"
FRAME = b"==="
PHOTO = b"\x89PNG\r\n\x1a\n" + bytes(range(256))

service = soapjms.Service()


@service.operation(f"{{{NAMESPACE}}}frame")
def frame(request: soapjms.Request) -> soapjms.Reply:
    """Frame a photo, whether it came as an attachment or as base64 text in the envelope."""
    photo = request.attachments.octets_of(request.element)
    framed = soapjms.Attachment(b"".join([FRAME, photo, FRAME]), "image/png", "framed@photos")
    answer = etree.Element(f"{{{NAMESPACE}}}frameResponse", nsmap={None: NAMESPACE})
    answer.append(framed.include())
    return soapjms.Reply(answer, [framed])


def request_for(photo: soapjms.Attachment) -> etree._Element:
    """Make a request with an xop:Include in place of the photo, which makes it MTOM."""
    body = etree.Element(f"{{{NAMESPACE}}}frame", nsmap={None: NAMESPACE})
    body.append(photo.include())
    return soapjms.envelope(body, version=soapjms.SoapVersion.SOAP_12)


def main(arguments: Sequence[str]) -> int:
    """Have a photo framed at the broker whose URL is given, else at the embedded one."""
    if not arguments:
        with TemporaryDirectory() as folder:
            photo_file = Path(folder, "photo.png")
            photo_file.write_bytes(PHOTO)
            return main(["embedded:", str(photo_file), str(Path(folder, "framed.png"))])
    if len(arguments) != 3 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    url, source, target = arguments
    with (
        soapjms.connect(url) as connection,
        soapjms.Dispatcher(connection, URI, service),
        soapjms.Client(connection, URI, timeout=30) as client,
    ):
        photo = soapjms.Attachment(Path(source), "image/png", "photo@photos")
        response = client.call(request_for(photo), attachments=[photo]).raise_for_fault()
        assert response.element is not None
        octets = response.attachments.octets_of(response.element)
        Path(target).write_bytes(octets)
        print(f"sent {Path(source).stat().st_size} octets, got {len(octets)}")
        content_type = response.message.properties.text("SOAPJMS_contentType") or ""
        print(f"as {content_type.partition(';')[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
