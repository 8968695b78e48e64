"""The help: a line for each command, and one or two sentences in the same style for each option."""

from __future__ import annotations

import re

import click
import pytest
from cli_kit import commands, run

from soapjms.cli.commands import COMMANDS

COLUMNS = 80
MAX_SENTENCES = 2
MAX_CHARACTERS = 160
"""Of an option, without its default: three lines beside the longest names."""
DEFAULT = re.compile(r"  \[default: .+\]$")


EVERY = list(commands())
GROUPS = [words for words, each in EVERY if isinstance(each, click.Group)]
OPTIONS = [(words, each) for words, command in EVERY for each in command.params if isinstance(each, click.Option)]


def test_there_is_something_to_check() -> None:
    """The commands, those below them, and their options."""
    assert {words[0] for words, _ in EVERY if words} == set(COMMANDS)
    assert GROUPS == [(), ("bridge",), ("uri",), ("wsdl",)]
    assert len(OPTIONS) > 150


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_each_command_has_one_line(words: tuple[str, ...]) -> None:
    """Of a terminal with 80 columns: a sentence, which is not cut."""
    lines = run(*words, "--help", COLUMNS=str(COLUMNS)).stdout.partition("Commands:\n")[2].splitlines()
    assert len(lines) == sum(len(each) == len(words) + 1 and each[:-1] == words for each, _ in EVERY)
    for line in lines:
        assert re.fullmatch(r"  [a-z-]+ +[A-Z].*[^.]\.", line), line
        assert len(line) <= COLUMNS, line


@pytest.mark.parametrize(("words", "option"), OPTIONS, ids=lambda value: getattr(value, "opts", [None])[0])
def test_each_option_has_one_sentence_or_two(words: tuple[str, ...], option: click.Option) -> None:
    """With a capital and a stop; the default follows, if click does not add it."""
    said = option.help or ""
    text = DEFAULT.sub("", said)
    assert "default:" not in text
    assert re.fullmatch(r"[A-Z].*\.", text), text
    assert len(re.findall(r"[.?!](?= |$)", text)) <= MAX_SENTENCES, text
    assert len(text) <= MAX_CHARACTERS, text
    assert not re.search(r"  |\.\.|\n", text), text
