"""Properties files read as Java reads them."""

from __future__ import annotations

import base64
import random
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DATA
from real_brokers import BRIEF, RealBroker, java

from brokers.naming import NamingError
from brokers.naming.properties_file import MAX_FILE_OCTETS, read_properties

JAVA_NAMES = DATA / "jndi" / "JavaNames.java"
CHARACTERS = st.characters(exclude_categories=["Cs"])


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("a b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("# c\n ! c\n\n \t\f\na=b#c", {"a": "b#c"}),
        ("# no continuation \\\na=b", {"a": "b"}),
        ("a=b\\\n   c\\\r\n\td", {"a": "bcd"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("\\\n# c\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        (r"a\ b\:c\=d\#e=f", {"a b:c=d#e": "f"}),
        (r"a=\t\n\r\f\\\z\"", {"a": '\t\n\r\f\\z"'}),
        (r"caf\u00E9=\u20ac", {"café": "€"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        (r"a=\\u0041", {"a": r"\u0041"}),
        ("a=\x0bb\x85c\u2028d", {"a": "\x0bb\x85c\u2028d"}),
        ("a=b\\", {"a": "b"}),
        ("\\", {"": ""}),
        ("\\\n", {"": ""}),
        ("\\\r\n", {}),
    ],
)
def test_text(text: str, entries: dict[str, str]) -> None:
    """Separators, comments, continuation lines and escapes mean what they mean to Java."""
    assert read_properties(text) == entries


@given(st.dictionaries(st.text(CHARACTERS, max_size=20), st.text(CHARACTERS, max_size=20), max_size=5))
def test_round_trip(entries: dict[str, str]) -> None:
    """What is written with every special character escaped reads back the same, as text and as octets."""
    lines = [f"{escaped(key)}={escaped(value)}" for key, value in entries.items()]
    text = "\n".join(lines)
    assert read_properties(text) == entries
    assert read_properties(text.encode("ascii")) == entries


def escaped(text: str) -> str:
    """Write every character but letters and digits as Java's escapes, which are UTF-16."""
    units = text.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


@given(st.text(st.sampled_from("\\\n\r \t=:#!au0\ud83d\ude00é"), max_size=30))
def test_anything(text: str) -> None:
    """Whatever comes is read or refused with its line; nothing else happens."""
    refusal = None
    try:
        "".join(read_properties(text)).encode("utf-8")
    except NamingError as error:
        refusal = str(error)
    assert refusal is None or refusal.startswith("line ")


@pytest.mark.parametrize(
    ("octets", "entries"),
    [
        ("a=é".encode("latin-1"), {"a": "é"}),
        ("a=é".encode(), {"a": "Ã©"}),
        ("a=é€".encode("utf-8-sig"), {"a": "é€"}),
    ],
)
def test_octets(octets: bytes, entries: dict[str, str]) -> None:
    """Octets are ISO-8859-1 as with Java, or UTF-8 after its byte order mark."""
    assert read_properties(octets) == entries


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n\na=\\u12g4", r"line 3: \\u must be followed by four hexadecimal digits"),
        ("a=\\u12", r"line 1: \\u must be followed"),
        ("\\u=b", r"line 1: \\u must be followed"),
        ("a=b\\\n\\u00e", r"line 2: \\u must be followed"),
        ("a=\\ud83d", "line 1: half of a surrogate pair is not a character"),
        ("a=\ude00", "line 1: half of a surrogate pair is not a character"),
        ("a=b".encode("utf-16"), "the properties must be ISO-8859-1"),
        (b"\xef\xbb\xbfa=\xff", "the properties begin as UTF-8, but are invalid at octet 5"),
        ("a" * (MAX_FILE_OCTETS + 1), f"must hold at most {MAX_FILE_OCTETS} octets, got {MAX_FILE_OCTETS + 1}"),
    ],
)
def test_refused(content: str | bytes, message: str) -> None:
    """Bad escapes, other encodings and huge files are refused; the line is named."""
    with pytest.raises(NamingError, match=message):
        read_properties(content)


def seconds_to_read(text: str) -> float:
    """Read properties and tell the processor time that it took."""
    begin = time.process_time()
    assert len(read_properties(text)) > 0
    return time.process_time() - begin


@pytest.mark.parametrize("unit", ["a\\\n", "\\\n", "\\", " ", "a=b\n", "\\u0041", "a", "=", "\r", "a\\ "])
def test_linear(unit: str) -> None:
    """Twice the size takes about twice the time, whatever is repeated."""
    small, large = (
        min(seconds_to_read("k" + unit * (size // len(unit) - 1)) for _ in range(3))
        for size in (MAX_FILE_OCTETS // 4, MAX_FILE_OCTETS // 2)
    )
    assert large < 0.2 or large < 5 * small


PIECES = [
    *("\\", "\\", "\\", "\n", "\r", "\r\n", " ", "\t", "\f", "=", ":", "#", "!", "a", "b", "u", "n", "0", "k=v"),
    *("\\u0041", "\\u00e9", "\\ud83d\\ude00", "\xe9", "\x0b", "\x85", "\x00", "\\\n"),
]


@pytest.mark.broker
def test_as_java(tmp_path: Path, activemq: RealBroker) -> None:
    """Two thousand files of odd pieces are read as java.util.Properties reads them, but for half surrogate pairs."""
    draw = random.Random(2060)
    files = ["".join(draw.choices(PIECES, k=draw.randint(0, 14))) for _ in range(2000)]
    for number, text in enumerate(files):
        (tmp_path / f"{number:04}").write_bytes(text.encode("latin-1"))
    command = [java(), *BRIEF, "-Xmx128m", "-cp", activemq.classpath, str(JAVA_NAMES), "load", str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    for text, expected in zip(files, loaded(output), strict=True):
        if expected is None or "\ufffd" in "".join([*expected, *expected.values()]):
            with pytest.raises(NamingError):
                read_properties(text.encode("latin-1"))
        else:
            assert read_properties(text.encode("latin-1")) == expected, text


def loaded(output: str) -> list[dict[str, str] | None]:
    """Read what JavaNames wrote: the entries of each file, None for one that Java refused.

    Java writes half of a surrogate pair as U+FFFD.
    """
    files: list[dict[str, str] | None] = []
    for line in output.splitlines():
        if line == "refused":
            files[-1] = None
        elif not line.startswith("="):
            files.append({})
        else:
            key, value = (base64.b64decode(each[1:]).decode("utf-16-be") for each in line.split(" "))
            entries = files[-1]
            assert entries is not None
            entries[key] = value
    return files
