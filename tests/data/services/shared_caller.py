"""A client that shares its reply queue with others: `python shared_caller.py URL URI CALLS NAME`; says what it got."""

from __future__ import annotations

import json
import sys

import soapjms

url, uri, calls, name = sys.argv[1:]
wrong = []
with soapjms.connect(url) as connection, soapjms.Client(connection, uri, timeout=60, replies="shared") as client:
    client.ping()
    print("ready", flush=True)
    sys.stdin.readline()
    futures = {}
    for number in range(int(calls)):
        word = f"{name}-{number}"
        futures[word] = client.submit(
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
            f'<greetMe xmlns="urn:greeter">{word}</greetMe></e:Body></e:Envelope>'
        )
    for word, future in futures.items():
        element = future.result(60).raise_for_fault().element
        if element is None or element.text != f"Hello {word}":
            wrong.append(word)
print(json.dumps({"calls": len(futures), "wrong": wrong, "counts": client.counts}))
