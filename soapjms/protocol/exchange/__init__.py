"""From captured records to exchanges: merging the copies of one message, pairing responses with requests.

The same functions serve every engine. An engine computes the `keys` of each record, replaces the key of a possible
response by its alias, groups the records by key in order of time, and streams each group through `pair`; `exchanges_of`
does all of this in memory. Nothing here depends on a profile: the assertions judge whether a response matched by the
right id.

`model.py` has the keys for grouping and the resulting exchanges, `copies.py` finds and merges copies of one message,
`pairs.py` finds the nearest pairs, `stream.py` does both with the records of a key as they come.

Spec: capture record, "Copies and pairing".
"""

from soapjms.protocol.exchange.copies import merge
from soapjms.protocol.exchange.model import DEFAULT_WINDOW, Exchange, Keys, Pattern, keys, keys_of, record_hash
from soapjms.protocol.exchange.stream import exchanges_of, keyed, pair, settled

__all__ = [
    "DEFAULT_WINDOW",
    "Exchange",
    "Keys",
    "Pattern",
    "exchanges_of",
    "keyed",
    "keys",
    "keys_of",
    "merge",
    "pair",
    "record_hash",
    "settled",
]
