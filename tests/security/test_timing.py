"""Logins take as long for users that there are not as for wrong passwords."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from time import perf_counter

import pytest
from security_kit import ask as asked
from security_kit import digested, secured, service, token, tokens
from smqp_kit import From, running

from brokers.amqp.listener import Options
from soapjms.security import DIGEST, TEXT


def assert_alike(begin: Callable[[int], Callable[[str], object]], rounds: int, times: int) -> None:
    """See that guesses as "ann", whom there is, take as long as those as "bea", the quickest of several rounds in turn.

    Args:
        begin: returns what guesses, of one round; few guesses of each are looked at.
        rounds: of which the quickest counts; the shorter they are, the more of them nothing else disturbs. On a busy
            machine there are up to five times as many: a real difference stays, however many there are.
        times: guesses of each name in a round.
    """
    seconds = {"ann": 60.0, "bea": 60.0}
    for number in range(5 * rounds):
        guess = begin(number)
        for name in seconds:
            begun = perf_counter()
            for _ in range(times):
                guess(name)
            seconds[name] = min(seconds[name], perf_counter() - begun)
        if number >= rounds - 1 and 0.6 < seconds["ann"] / seconds["bea"] < 1.6:
            return
    pytest.fail(f"the quickest guesses took {seconds}")


@pytest.mark.parametrize("kind", [TEXT, DIGEST])
def test_tokens(kind: str) -> None:
    """UsernameTokens, in text and digests."""

    def begin(number: int) -> Callable[[str], object]:
        made = service(tokens())
        return lambda name: asked(made, bodies[name])

    bodies = {name: secured(token(name, "no") if kind == TEXT else digested(name, "no")) for name in ("ann", "bea")}
    assert_alike(begin, 40, 2)


def test_amqp() -> None:
    """PLAIN, at the AMQP listener."""
    options = Options(users={"ann": "secret-of-ann"})
    assert_alike(lambda _: lambda name: options.knows(name, "a guess"), 200, 1000)


def test_smqp() -> None:
    """LOGIN and PASS; comparing passwords takes long on purpose, whether there is one or not."""
    with running(scrypt_cost=2**14, max_failures=100) as server, ExitStack() as stack:
        server.accounts("ann")

        def begin(number: int) -> Callable[[str], object]:
            return partial(guess, stack.enter_context(closing(From(f"127.0.0.{number + 2}", server.address))))

        def guess(stranger: From, name: str) -> None:
            assert stranger.code(f"LOGIN {name} CLEAR/1.0") == 200
            assert stranger.code(f"PASS {name} wrong") == 401

        assert_alike(begin, 9, 3)
