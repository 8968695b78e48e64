"""Memory that one call with a large MTOM part takes in the client and in the service, each a process of its own.

    python benchmarks/part_memory.py [--mebibytes 8] [--protocols stomp amqp]

After calls with small parts, each process notes its resident memory; then one call sends the part in a direction, and
the other side reads it. What is printed is how far resident memory rose at its highest, divided by the size of the
part. The part itself is made before and is not counted; a part that is a Path is counted, as it is read for the call.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

from lxml import etree

import soapjms

SPACE = "{urn:bench}"
WARM_UP = 30
SMALL_OCTETS = 1000
WAYS = ["request", "request from a path", "response"]


def memory(name: str) -> int:
    """Return a figure of this process's memory, in octets: VmRSS, or VmHWM, its highest value."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def begin() -> int:
    """Let the highest value start again; return the resident memory."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def element(name: str, text: str = "", part: soapjms.Attachment | None = None) -> etree._Element:
    """Make an element that refers to a part, if there is one."""
    made = etree.Element(f"{SPACE}{name}")
    made.text = text
    if part is not None:
        made.append(part.include())
    return made


def part_of(content: bytes | Path) -> soapjms.Attachment:
    """Make a part."""
    return soapjms.Attachment(content, "application/octet-stream", "part@bench")


def serve(url: str, name: str) -> None:
    """Take and give parts until standard input ends."""
    service, contents, before = soapjms.Service(), [os.urandom(SMALL_OCTETS)], [0]

    @service.operation(f"{SPACE}take")
    def take(request: soapjms.Request) -> etree._Element:
        sha256(request.attachments.octets_of(request.element))
        return element("taken")

    @service.operation(f"{SPACE}give")
    def give(request: soapjms.Request) -> soapjms.Reply:
        part = part_of(contents[-1])
        return soapjms.Reply(element("given", part=part), [part])

    @service.operation(f"{SPACE}begin")
    def note(request: soapjms.Request) -> etree._Element:
        contents.append(os.urandom(int(request.element.text or 0)))
        before[0] = begin()
        return element("begun")

    @service.operation(f"{SPACE}end")
    def end(request: soapjms.Request) -> etree._Element:
        return element("ended", str(memory("VmHWM") - before[0]))

    with soapjms.connect(url) as connection, soapjms.Dispatcher(connection, f"jms:queue:{name}", service):
        print("ready", flush=True)
        sys.stdin.read()


def call(url: str, name: str, way: str, size: int) -> None:
    """Print how much memory the client and the service took, in octets."""
    with ExitStack() as stack:
        connection = stack.enter_context(soapjms.connect(url))
        client = stack.enter_context(soapjms.Client(connection, f"jms:queue:{name}", timeout=60))

        def ask(operation: str, text: str = "", content: bytes | Path | None = None) -> Any:
            parts = [] if content is None else [part_of(content)]
            space = soapjms.SoapVersion.SOAP_11.namespace
            envelope = etree.Element(f"{{{space}}}Envelope")
            body = etree.SubElement(envelope, f"{{{space}}}Body")
            body.append(element(operation, text, parts[0] if parts else None))
            return client.call(envelope, attachments=parts).raise_for_fault()

        def once(content: bytes | Path) -> None:
            if way == "response":
                response = ask("give")
                sha256(response.attachments.octets_of(response.element))
            else:
                ask("take", content=content)

        for _ in range(WARM_UP):
            once(os.urandom(SMALL_OCTETS))
        content: bytes | Path = os.urandom(size if way == "request" else SMALL_OCTETS)
        if way == "request from a path":
            content = Path(stack.enter_context(TemporaryDirectory())) / "part"
            content.write_bytes(bytes(size))
        ask("begin", str(size if way == "response" else SMALL_OCTETS))
        before = begin()
        once(content)
        print(memory("VmHWM") - before, ask("end").element.text)


def measure(url: str, name: str, way: str, size: int) -> tuple[float, float]:
    """Return how much memory the client and the service took, as multiples of the part."""
    words = [sys.executable, __file__, "--url", url, "--name", name, "--way", way, "--octets", str(size)]
    with subprocess.Popen([*words, "--side", "service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        try:
            if service.stdout.readline().strip() != b"ready":
                raise RuntimeError("the service did not start")
            done = subprocess.run([*words, "--side", "client"], stdout=subprocess.PIPE, timeout=100, check=True)
        finally:
            service.stdin.close()
            service.wait(30)
    of_client, of_service = map(int, done.stdout.split())
    return of_client / size, of_service / size


def main() -> None:
    """Measure all ways over each protocol, or be one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=8)
    parser.add_argument("--protocols", nargs="+", choices=["stomp", "amqp"], default=["stomp", "amqp"])
    for name in ("side", "url", "name", "way"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--octets", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side == "service":
        serve(options.url, options.name)
    elif options.side == "client":
        call(options.url, options.name, options.way, options.octets)
    else:
        from real_brokers import start_activemq

        with start_activemq() as broker:
            print(f"{options.mebibytes} MiB, multiples of the part\n{'':28}client  service")
            for protocol in options.protocols:
                url = getattr(broker, f"{protocol}_url")
                for way in WAYS:
                    found = measure(url, f"bench.{protocol}.{way[-4:]}", way, options.mebibytes << 20)
                    print(f"{protocol:5}  {way:20} {found[0]:6.2f}  {found[1]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
