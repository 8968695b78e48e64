"""What safety costs our client and service, and what a slow function or a long life costs the calls beside or after it.

    python benchmarks/safety.py [--rows levels unsafe slow long] [--in-flight 1 8 32] [--pairs 5] [--seconds 2]
                                [--broker artemis]

* `levels`: each level of safety beside the one without any: `unsafe` has messages that are not persistent and no
  confirmations; `confirmed` accepts a request once the broker has its persistent answer (`plain` in `calls.py`);
  `transactions` has group commits, `store` has a `SqliteStore` besides.
* `unsafe`: no safety at all, beside bare stomp.py loops without any.
* `slow`: the 99th percentile of calls while one function takes 10 s, over the usual one.
* `long`: calls a second after 100,000 calls, over those after 1,000; it takes minutes, so it runs only if asked for.

`slow` and `long` run on Artemis too. Bare loops with the safety of the other levels are in `calls.py`, and so is what
figures and ratios are.
"""

from __future__ import annotations

from calls import BARE
from comparison import OURS, Goal, Row, Side, report

UNSAFE = {"persistent": False}
LEVELS = {
    "unsafe": Side(OURS.client, OURS.service, UNSAFE),
    "confirmed": OURS,
    "transactions": Side(OURS.client, OURS.service, {"transactional": True}),
    "store": Side(OURS.client, OURS.service, {"transactional": True, "store": "file"}),
}
ROWS = {
    "levels": [Row(f"levels, {count} in flight", LEVELS, (), {"in_flight": count}) for count in (1, 8, 32)],
    "unsafe": [
        Row(
            f"unsafe, {count} in flight",
            {"bare": BARE, "ours": OURS},
            [Goal("ours", "rate", bound)],
            {"in_flight": count} | UNSAFE,
        )
        for count, bound in {1: 1.0, 8: 1.25, 32: 1.25}.items()
    ],
    "slow": [
        Row(
            "beside a slow function",
            {"ours": Side("ours:BesideSlow", OURS.service)},
            [Goal("ours", "p99 over usual", 2.0, by_ratio=False, is_most=True)],
            {"in_flight": 8, "transactional": True},
        )
    ],
    "long": [
        Row(
            "after 100,000 calls",
            {"ours": Side("ours:Long", OURS.service)},
            [Goal("ours", "rate over first", 1.0, by_ratio=False)],
            {"in_flight": 8, "transactional": True},
        )
    ],
}

if __name__ == "__main__":
    report(ROWS, ["levels", "unsafe", "slow"], __doc__)
