"""A client with a key; runs inside a network namespace.

ask_often.py TARGET PORT KEY TIMES: that many streamed requests, each over a TLS connection of its own. Prints as JSON
the seconds to the first token of each, null where there was none; it ends with the first of these.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time

PATIENCE_S = 20  # of one request
PAUSE_S = 0.02  # no client makes a new connection so often, and more often than `source_rate` of the catalog it may not
TOKEN = b"token"


def ask(context: ssl.SSLContext, target: str, port: int, key: str) -> float | None:
    begun, said = time.monotonic(), b""
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n"
        "Connection: close\r\nContent-Length: 2\r\n\r\n{}"
    )
    try:
        with (
            socket.create_connection((target, port), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain) as client,
        ):
            client.sendall(request.encode())
            while TOKEN not in said:
                part = client.recv(65536)
                if not part:
                    return None
                said += part
    except OSError:
        return None
    return time.monotonic() - begun


def main() -> None:
    target, port, key, times = sys.argv[1:]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    said: list[float | None] = []
    while len(said) < int(times) and None not in said:
        said.append(ask(context, target, int(port), key))
        time.sleep(PAUSE_S)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
