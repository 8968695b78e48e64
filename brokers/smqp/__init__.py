"""SMQP, the Simple Message Queue Protocol of draft-tegen-smqp-01: client, server, and what both read and write.

Where to read: `replies.py`, `words.py`, `times.py`, `topics.py`, `ids.py` and `attributes.py` are the grammar;
`commands.py` is the table of commands; `content.py` is a message; `reading.py` and `dialogue.py` turn octets into
events. None of them does I/O. `dialect.py` names what the draft leaves open. The client is in `client/`, the server in
`server/`.
"""
