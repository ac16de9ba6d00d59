# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace what tells whose hosts these are: the same thing gets the same word everywhere. Pure.

Names come from the inventory; addresses, serials, keys and prompts are known by their form. What stands for nobody
stays: loopback, versions, digests of images.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import hidden

REMOVED = "(hidden)"  # as texts.hidden says it
# An escape ends in a letter or a digit, which is no part of the word behind it: `\n192.0.2.1` in JSON, `%3D` in an
# address, a colour of a terminal. A NUL marks the edge.
_EDGE = "\0"
_ESCAPE = re.compile(r"\\(?:[bfnrtv]|u[0-9a-fA-F]{4}|x(?:[01][0-9a-fA-F]|7[fF]))|%[0-9a-fA-F]{2}|\[[0-9;]{0,20}m")
# Longest first where one could begin inside another one.
_FORMS = re.compile(
    r"""(?P<pem>-----BEGIN[ ][^-]+-----.*?(?:-----END[ ][^-]+-----|\Z))
    |(?P<prompt>(?i:\b(?:prompt(?:_token_ids|_embeds)?|messages|content|text|input(?:_value|_text)?|query|documents?
        |reasoning(?:_content)?|instructions|arguments|output_text|Generated[ ]response[ ].{1,200}?[ ]output)
        \\{0,7}["']?[ ]?[=:][ ]?)(?=\\{0,7}["'\[{]).*)
    |(?P<query>[?&][\w-]{0,40}(?i:key|token|sig|credential|policy)[\w-]{0,40}=)(?P<signed>[^&\s"']+)
    |(?P<said>(?i:(?:api[_-]?key|token|passw(?:or)?d|secret|authorization|bearer)["']?
        (?:[ ]?[=:][ ]?|[ ])["']?(?:bearer[ ])?))
        (?P<secret>(?=[^\s"',;}]{0,99}[\d/+_-])[^\s"',;}]{8,})
    |(?P<login>(?<=://)[^\s/@:]+:[^\s/@]+(?=@))
    |(?P<token>\b(?:(?:sk|hf|nvapi|gh[opsur]|glpat|xox[abp])[-_][\w-]{8,}|github_pat_\w{8,}|A[KS]IA[0-9A-Z]{16}\b
        |eyJ[\w-]{6,}(?:\.[\w-]+){1,2}))
    |(?P<mail>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<uuid>(?<![^\W_])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![^\W_]))
    |(?P<macs>(?:(?<![\w:])|(?<=(?i:mac):))[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5,19}(?!\w|:\w))
    |(?P<enx>\benx)(?P<bare>[0-9a-fA-F]{12})(?!\w)
    |(?P<v6>(?<![\w:.])(?!(?i:::ffff:)\d{1,3}\.)(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:]))
    |(?P<arpa>(?<![\w.])(?:[0-9a-fA-F]{1,3}\.){2,32}(?:in-addr|ip6)\.arpa\b)
    |(?P<v4>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d))
    |(?P<number>(?:(?i:serial(?:[ _-]?(?:number|no))?)|\b[sS][nN](?=["' =:]{1,50}[\w-]{0,99}\d))
        ["']?[ ]{0,20}[=:][ ]{0,20}["']?)(?P<serial>[\w-]{4,})
    |(?P<by_id>\bby(?:-id/|\\x2did-))(?P<disk>[^\s"',;)\]}]+)
    |(?P<wwid>\b(?:eui\.|naa\.|t10\.|nvme\.|wwn-0x)[\w.-]{8,})
    |(?P<hex>(?<!sha256:)(?<!\w)[0-9a-fA-F]{32,}(?!\w))
    # Lines of the gateway and of the router: a client or a host may have been known on that day alone.
    |(?P<gateway>gb10_gateway(?:\[\d{1,9}\])?:[ ])(?P<caller>[0-9a-fA-F:.]+)[ ]"(?P<client>[^"\s]+)(?=")
    |(?P<router>"[\w.-]+"[ ]")(?P<replica>[\w.-]+)(?=(?::asleep)?"[ ]-?\d+[ ]\d+[ ]B[ ]\d+[ ]ms)
    |(?P<home>/home/)(?P<user>[^/\s"':,]+)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"token": "key", "wwid": "disk", "mail": "mail", "uuid": "id", "arpa": "arpa", "hex": "id"}
_NO_WORD = 5  # characters of a name, with a digit, a dot or a dash in it
_OCTETS = 6  # of a MAC; the line of a firewall has two of them and a type, a name for DHCP has one behind others
_GUID = re.compile(r"(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}\Z")
_KEPT_AS = re.compile(r"(?i)(^|_)(serial|serial_number|machine_digest|machine_id)\Z")
_SECRET = re.compile(r"(?i)(^|_)(\w+_key|token|password|secret|keys)\Z")


def _pattern(name: str, kind: str) -> str:
    """A name where it stands alone, and one that is no word of a language within others, too.

    With the domain behind a host: it tells more than the name.
    """
    domain = r"(?:\.[a-z][\w-]*)*" if kind == "host" else ""
    if kind in ("host", "domain", "client") and len(name) >= _NO_WORD and re.search(r"[\d.-]", name):
        return rf"(?<![^\W_])({re.escape(name)}){domain}(?![^\W_])"
    return rf"(?<![\w.-])({re.escape(name)}){domain}(?![\w-])"


class Disguise:
    """`names`: what is known beforehand, by the word that stands for it."""

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self.known: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        own = {name: word for word, several in names.items() for name in several if name}
        for name, word in own.items():
            self._word(word, name)
        self._own, self._longest = own, sorted(own, key=len, reverse=True)
        each = "|".join(_pattern(name, own[name]) for name in self._longest)
        self._names = re.compile(each, re.IGNORECASE) if own else None

    def text(self, text: str) -> str:
        """Replace line by line: a prompt ends with its line, a key in PEM does not."""
        if "-----BEGIN " not in text:
            return "\n".join(self._line(line) for line in text.split("\n"))
        return self._line(text)

    def value(self, value: Any, key: str = "") -> Any:
        """Replace in each text of a document."""
        if isinstance(value, Mapping):
            below = key if _SECRET.search(key) else ""  # whoever has such a key, by name
            return {self.text(str(name)): self.value(item, below or str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, key) for item in value]
        if not isinstance(value, str) or not value:
            return value
        if _SECRET.search(key):
            return REMOVED
        return self._word("serial", value) if _KEPT_AS.search(key) else self.text(value)

    def _line(self, line: str) -> str:
        line = _ESCAPE.sub(rf"\g<0>{_EDGE}", line.replace(_EDGE, ""))
        line = hidden(_FORMS.sub(self._form, line))
        return (self._names.sub(self._name, line) if self._names else line).replace(_EDGE, "")

    def _form(self, found: re.Match[str]) -> str:
        kind, text = str(found.lastgroup), found[0]
        if kind == "pem" or kind == "login":
            return REMOVED
        if kind == "prompt":
            return re.split(r"[=:]", text, maxsplit=1)[0] + f": {REMOVED}"
        if kind in ("secret", "signed"):
            return (found["said"] or found["query"]) + REMOVED
        if kind == "disk":
            return found["by_id"] + self._word("disk", found["disk"])
        if kind == "serial":
            return found["number"] + self._word("serial", found["serial"])
        if kind == "user":
            return found["home"] + self._word("user", found["user"])
        if kind == "client":
            return f'{found["gateway"]}{self._address(found["caller"])} "{self._word("client", found["client"])}'
        if kind == "replica":
            return found["router"] + self._word("host", found["replica"])
        if kind == "macs":
            return ":".join(self._macs(re.split("[:-]", text)))
        if kind == "bare":
            return found["enx"] + self._word("mac", found["bare"].lower())
        if kind in ("v4", "v6"):
            return self._address(text)
        return self._word(_WORDS[kind], text.lower())

    def _macs(self, octets: list[str]) -> Iterator[str]:
        """Each of them, and what is left over."""
        while len(octets) >= _OCTETS:
            yield self._word("mac", "".join(octets[:_OCTETS]).lower())
            octets = octets[_OCTETS:]
        yield from octets

    def _address(self, text: str) -> str:
        """Addresses of one network stay in one, so that a wrong one can be seen."""
        if text.endswith(":") and not text.endswith("::"):  # of the sentence
            return f"{self._address(text[:-1])}:"
        if _GUID.match(text):
            return self._word("id", text.lower())
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        if address.version == 6:
            return self._word("address6", address.compressed)
        network, __, host = text.rpartition(".")
        return text if network.startswith("255.") else f"{self._word('network', network)}.{host}"

    def _name(self, found: re.Match[str]) -> str:
        name = self._longest[int(found.lastindex or 1) - 1]
        return self._word(self._own[name], name)

    def _word(self, kind: str, what: str) -> str:
        what = what.replace(_EDGE, "")
        if (kind, what) not in self.known:
            self._count[kind] = self._count.get(kind, 0) + 1
            self.known[kind, what] = f"{kind}-{self._count[kind]}"
        return self.known[kind, what]
