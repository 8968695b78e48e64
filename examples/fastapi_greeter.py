"""A FastAPI application that calls a SOAP service over JMS, examples/greeter_service.py, and is one itself.

SOAPJMS_CONNECTION=stomp://admin:admin@localhost:61613 uvicorn --app-dir examples fastapi_greeter:app

Then: curl 'http://localhost:8000/greeting?name=World'. Over JMS it says how often it greeted, at jms:queue:greetings.

python examples/fastapi_greeter.py does all of it, with the greeter, in one process, at the broker of SOAPJMS_CONNECTION
or at the embedded one.

It needs: pip install fastapi 'soapjms[bridge]'
"""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from greeter_service import service
from lxml import etree

import soapjms

try:
    from fastapi import FastAPI, HTTPException, Request

    from soapjms.bridge.listener import Listener
except ImportError as error:
    sys.exit(f"{error}: this example needs pip install fastapi 'soapjms[bridge]'")

NAMESPACE = "urn:greeter"
URI = "jms:queue:greeter"
COUNT_URI = "jms:queue:greetings"

counter = soapjms.Service()


@counter.operation(f"{{{NAMESPACE}}}countGreetings")
async def count_greetings(request: soapjms.Request) -> etree._Element:
    """Say how often somebody was greeted. It runs on the application's own loop, so it may use what belongs to it."""
    response = etree.Element(f"{{{NAMESPACE}}}countGreetingsResponse")
    response.text = str(app.state.greetings)
    return response


def broker_url() -> str:
    """Return the URL of the broker, for all that connects to it."""
    return os.environ.get("SOAPJMS_CONNECTION", "embedded:")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one connection for all that is called and served; at the end, finish what is under way."""
    app.state.greetings = 0
    async with (
        soapjms.connect_async(broker_url()) as connection,
        soapjms.AsyncClient(connection, URI, timeout=5) as app.state.greeter,
        soapjms.AsyncDispatcher(connection, COUNT_URI, counter),
    ):
        yield


app = FastAPI(lifespan=lifespan)


def body(name: str) -> etree._Element:
    """Make the body of a request; the name is untrusted, and lxml escapes it."""
    element = etree.Element(f"{{{NAMESPACE}}}greetMe", nsmap={None: NAMESPACE})
    etree.SubElement(element, f"{{{NAMESPACE}}}name").text = name
    return element


@app.get("/greeting")
async def greeting(name: str, request: Request) -> dict[str, str]:
    """Greet somebody."""
    client: soapjms.AsyncClient = request.app.state.greeter
    try:
        response = (await client.call(body(name))).raise_for_fault()
    except ValueError as error:  # a character that XML cannot hold
        raise HTTPException(422, f"{error}") from error
    except soapjms.SoapFaultError as fault:
        raise HTTPException(422 if fault.blame == "Sender" else 502, fault.reason) from fault
    except soapjms.CallTimeoutError as error:
        raise HTTPException(504, "the greeter did not answer in time") from error
    except soapjms.CallFailedError as error:
        raise HTTPException(502, "the greeter cannot be reached") from error
    request.app.state.greetings += 1
    return {"greeting": response.envelope.body.findtext(".//{*}greeting") or ""}


async def main() -> None:
    """Serve the greeter and the endpoint, and ask for one greeting."""
    with soapjms.connect(broker_url()) as connection, soapjms.Dispatcher(connection, URI, service):
        async with lifespan(app):  # which uvicorn's own command runs
            with Listener(app, "127.0.0.1:0") as listener:
                print(await asyncio.to_thread(ask, f"{listener.url}/greeting?name=World"))


def ask(url: str) -> str:
    """Get a URL, as any HTTP client."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()  # type: ignore[no-any-return]


if __name__ == "__main__":
    asyncio.run(main())
