"""The names of character encodings, and decoding by them: a closed table, so that a peer's label chooses nothing else.

Python would look for an unknown label as a module on disk, knows codecs that are no charsets, and misses many names
of the IANA registry; so its own look-up never sees a label.

Spec: IANA character sets; RFC 2978; UTS #22 1.4 (matching of aliases).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ROWS: Final = """\
utf-8           utf8
utf-16          utf16 iso10646ucs2 csunicode
utf-16-be       utf16be
utf-16-le       utf16le
utf-32          utf32 iso10646ucs4 csucs4
utf-32-be       utf32be
utf-32-le       utf32le
ascii           usascii ascii us iso646us isoir6 iso646irv1991 ansix341968 ansix341986 ibm367 cp367
iso8859-1       iso88591 iso885911987 isoir100 latin1 l1 isolatin1 ibm819 cp819
iso8859-2       iso88592 iso885921987 isoir101 latin2 l2 isolatin2
iso8859-3       iso88593 iso885931988 isoir109 latin3 l3 isolatin3
iso8859-4       iso88594 iso885941988 isoir110 latin4 l4 isolatin4
iso8859-5       iso88595 iso885951988 isoir144 cyrillic isolatincyrillic
iso8859-6       iso88596 iso885961987 isoir127 ecma114 asmo708 arabic isolatinarabic
iso8859-7       iso88597 iso885971987 isoir126 elot928 ecma118 greek greek8 isolatingreek
iso8859-8       iso88598 iso885981988 isoir138 hebrew isolatinhebrew iso88598e iso88598i
iso8859-9       iso88599 iso885991989 isoir148 latin5 l5 isolatin5
iso8859-10      iso885910 iso8859101992 isoir157 latin6 l6 isolatin6
iso8859-11      iso885911 tis620
iso8859-13      iso885913
iso8859-14      iso885914 iso8859141998 isoir199 latin8 l8 isoceltic
iso8859-15      iso885915 latin9
iso8859-16      iso885916 iso8859162001 isoir226 latin10 l10
cp1250          windows1250 cp1250
cp1251          windows1251 cp1251
cp1252          windows1252 cp1252
cp1253          windows1253 cp1253
cp1254          windows1254 cp1254
cp1255          windows1255 cp1255
cp1256          windows1256 cp1256
cp1257          windows1257 cp1257
cp1258          windows1258 cp1258
cp874           windows874 cp874
cp437           ibm437 cp437 437 pc8codepage437
cp775           ibm775 cp775 pc775baltic
cp850           ibm850 cp850 850 pc850multilingual
cp852           ibm852 cp852 852 pcp852
cp855           ibm855 cp855 855
cp857           ibm857 cp857 857
cp858           ibm00858 ccsid00858 cp00858 cp858 pcmultilingual850euro
cp860           ibm860 cp860 860
cp861           ibm861 cp861 861 cpis
cp862           ibm862 cp862 862 pc862latinhebrew
cp863           ibm863 cp863 863
cp864           ibm864 cp864
cp865           ibm865 cp865 865
cp866           ibm866 cp866 866
cp869           ibm869 cp869 869 cpgr
koi8-r          koi8r
koi8-u          koi8u
mac-roman       macintosh mac
hp-roman8       hproman8 roman8 r8
kz1048          kz1048 strk10482002 rk1048
ptcp154         ptcp154 pt154 cp154 cyrillicasian
shift_jis       shiftjis mskanji
cp932           windows31j cp932 ms932
euc_jp          eucjp extendedunixcodepackedformatforjapanese eucpkdfmtjapanese
iso2022_jp      iso2022jp
iso2022_jp_2    iso2022jp2
euc_kr          euckr ksc56011987 ksc56011989 ksc5601 korean isoir149
iso2022_kr      iso2022kr
gb2312          gb2312
gbk             gbk cp936 ms936 windows936
gb18030         gb18030
hz              hzgb2312
big5            big5
big5hkscs       big5hkscs
"""
"""A codec of Python, and the names that mean it, as `_squeezed` leaves them; each also with `cs` before it.

UTF-7 is left out: it hides markup from whoever looks at octets.
"""

CODECS: Final = frozenset(row.split()[0] for row in _ROWS.splitlines())
"""Every codec that a label can choose. Python loads one from its own library when it is first used."""

_EBCDIC_PAGES: Final = (
    "037 273 274 275 277 278 280 281 284 285 290 297 420 423 424 500 870 871 880 905 918 924 1026 1047 "
    "1140 1141 1142 1143 1144 1145 1146 1147 1148 1149"
).split()
_EBCDIC: Final = "ebcdic"

_PUNCTUATION: Final = {ord(each): None for each in "-_.:()+ "}
_LONGEST_LABEL: Final = 60


def _names() -> dict[str, str]:
    """Return what each squeezed name means: a codec, or a code page of EBCDIC."""
    names: dict[str, str] = {}
    for row in _ROWS.splitlines():
        codec, *aliases = row.split()
        names[codec] = codec  # found without squeezing: nearly every label is utf-8
        names.update((prefix + alias, codec) for alias in aliases for prefix in ("", "cs"))
    for page in _EBCDIC_PAGES:
        for width in (3, 5):
            names.update((maker + page.zfill(width), _EBCDIC + page) for maker in ("ibm", "csibm", "cp", "ccsid"))
    return names


_NAMES: Final[Mapping[str, str]] = _names()


def _squeezed(label: str) -> str:
    """Return a label in lower case without punctuation: how aliases are compared."""
    return label[:_LONGEST_LABEL].lower().translate(_PUNCTUATION)


def encoding_name(label: str) -> str:
    """Return one name for all the aliases of an encoding; an unknown label only in lower case."""
    return _meant(label) or label.lower()


def _meant(label: str) -> str | None:
    """Return the codec or the code page of EBCDIC that a label means, None if it is unknown."""
    return _NAMES.get(label.lower()) or _NAMES.get(_squeezed(label))


def is_known(label: str) -> bool:
    """Say whether a label names an encoding that can be decoded."""
    name = _meant(label)
    return name is not None and not name.startswith(_EBCDIC)


def is_ebcdic(label: str) -> bool:
    """Say whether a label names a code page of EBCDIC."""
    name = _meant(label)
    return (_squeezed(label).removeprefix("cs") if name is None else name).startswith(_EBCDIC)


def agree(one: str, other: str) -> bool:
    """Say whether two labels can mean the same octets: aliases, or UTF-16 and UTF-32 with and without byte order."""
    first, second = sorted((encoding_name(one), encoding_name(other)), key=len)
    return first == second or (first in ("utf-16", "utf-32") and second.startswith(first + "-"))


def decode(octets: bytes, label: str) -> str:
    """Decode octets in the encoding that a charset or an XML declaration names.

    Raises:
        ValueError: there is no such encoding, it is EBCDIC, which is refused, or the octets are not in it.
    """
    name = _meant(label)
    if name is not None and not name.startswith(_EBCDIC):
        return octets.decode(name)
    shown = repr(label[:_LONGEST_LABEL])
    if is_ebcdic(label):
        raise ValueError(f"the encoding {shown} is EBCDIC, which is refused: send UTF-8 or UTF-16")
    raise ValueError(f"the encoding {shown} is unknown; a name of the IANA registry, such as UTF-8, is accepted")
