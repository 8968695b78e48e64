"""SMQP, the Simple Message Queue Protocol of draft-tegen-smqp-01: protocol, client, server and broker adapter.

Where to read: `protocol/` reads and writes for both sides, without I/O: `lines.py` takes lines from octets,
`words.py`, `ids.py`, `topics.py` and `replies.py` are the grammar, `commands.py` is the table of commands,
`messages.py` is a message, `dialogue.py` turns octets into events, and `dialect.py` names what the draft leaves
open. The client is in `client/`, the server in `server/`, and `adapter/` turns the client into a `brokers.Connection`.
"""
