"""From captured records to exchanges: merging the copies of one message, pairing responses with requests.

The same functions serve every engine. An engine gives each record its `keys`, sends a record that may answer where an
alias says, brings the records of one key together in order of time, and streams them through `pair`; `exchanges_of`
does all of it in memory. Nothing here knows a profile: that a response matched by the wrong id is for the assertions
to say.

`keys.py` is what engines sort by, `model.py` what comes out; `copies.py` merges two records, `sightings.py` finds whose
copy a record is, `matching.py` finds the nearest pairs, `pairing.py` runs them over a stream.

Spec: capture record, "Copies and pairing".
"""

from soapjms.protocol.exchange.copies import merge
from soapjms.protocol.exchange.keys import Keys, keys, keys_of, record_hash
from soapjms.protocol.exchange.model import DEFAULT_WINDOW, Exchange, Pattern
from soapjms.protocol.exchange.pairing import exchanges_of, pair

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
