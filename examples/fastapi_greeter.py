"""An HTTP endpoint that calls a SOAP service over JMS: FastAPI at the front, examples/greeter_service.py behind it.

SOAPJMS_CONNECTION=stomp://admin:admin@localhost:61613 uvicorn --app-dir examples fastapi_greeter:app

Then: curl 'http://localhost:8000/greeting?name=World'

python examples/fastapi_greeter.py does both, with the service at the embedded broker, in one process.
"""

from __future__ import annotations

import asyncio
import os
import urllib.request
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from greeter_service import service
from lxml import etree

import soapjms
from soapjms.bridge.listener import Listener

NAMESPACE = "urn:greeter"
URI = "jms:queue:greeter"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one connection and one client for all requests; both are thread-safe."""
    with ExitStack() as stack:
        connection = stack.enter_context(soapjms.connect(os.environ.get("SOAPJMS_CONNECTION", "embedded:")))
        app.state.greeter = stack.enter_context(soapjms.Client(connection, URI, timeout=5))
        yield


app = FastAPI(lifespan=lifespan)


def envelope(name: str) -> etree._Element:
    """Write a request; the name is untrusted, and lxml escapes it."""
    space = soapjms.SoapVersion.SOAP_11.namespace
    root = etree.Element(f"{{{space}}}Envelope", nsmap={"env": space, None: NAMESPACE})
    operation = etree.SubElement(etree.SubElement(root, f"{{{space}}}Body"), f"{{{NAMESPACE}}}greetMe")
    etree.SubElement(operation, f"{{{NAMESPACE}}}name").text = name
    return root


@app.get("/greeting")
def greeting(name: str, request: Request) -> dict[str, str]:
    """Greet somebody. Not `async`, so FastAPI runs it on a thread, where a call may block."""
    client: soapjms.Client = request.app.state.greeter
    try:
        response = client.call(envelope(name)).raise_for_fault()
    except ValueError as error:  # a character that XML cannot hold
        raise HTTPException(422, f"{error}") from error
    except soapjms.SoapFaultError as fault:
        raise HTTPException(422 if fault.blame == "Sender" else 502, fault.reason) from fault
    except soapjms.CallTimeoutError as error:
        raise HTTPException(504, "the greeter did not answer in time") from error
    except soapjms.CallFailedError as error:
        raise HTTPException(502, "the greeter cannot be reached") from error
    return {"greeting": response.envelope.body.findtext(".//{*}greeting") or ""}


async def main() -> None:
    """Serve the greeter and the endpoint, and ask for one greeting."""
    with soapjms.connect("embedded:") as connection, soapjms.Dispatcher(connection, URI, service):
        async with lifespan(app):  # which uvicorn's own command runs
            with Listener(app, "127.0.0.1:0") as listener:
                print(await asyncio.to_thread(ask, f"{listener.url}/greeting?name=World"))


def ask(url: str) -> str:
    """Get a URL, as any HTTP client."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()  # type: ignore[no-any-return]


if __name__ == "__main__":
    asyncio.run(main())
