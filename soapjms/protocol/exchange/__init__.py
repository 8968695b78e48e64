"""From captured records to exchanges: merging the copies of one message, pairing responses with requests.

The same functions serve every engine. An engine gives each record its `keys`, sends a record that may answer where
an alias says, brings the records of one key together in order of time, and streams them through `pair`;
`exchanges_of` does all of it in memory. Nothing here knows a profile: that a response matched by the wrong id is for
the assertions to say.

`model.py` has the keys that engines sort by and the exchanges that come out, `copies.py` finds whose copy a record
is and merges the two, `pairing.py` finds the nearest pairs in a stream.

Spec: capture record, "Copies and pairing".
"""

from soapjms.protocol.exchange.copies import merge
from soapjms.protocol.exchange.model import DEFAULT_WINDOW, Exchange, Keys, Pattern, keys, keys_of, record_hash
from soapjms.protocol.exchange.pairs import exchanges_of, pair

__all__ = [
    "DEFAULT_WINDOW",
    "Exchange",
    "Keys",
    "Pattern",
    "exchanges_of",
    "keys",
    "keys_of",
    "merge",
    "pair",
    "record_hash",
]
