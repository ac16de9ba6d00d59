"""Takes the place of vLLM behind a router: `python replica.py PORT NAME [--gap S]`. At SIGTERM it dies at once.

Its answers say who gave them; that of /v1/embeddings says how often it was asked and how many clients left early.
"""

from __future__ import annotations

import argparse
import asyncio
import json

TOKENS = 8


class Replica:
    def __init__(self, name: str, model: str, gap_s: float) -> None:
        self.name, self.model, self.gap_s = name, model, gap_s
        self.asked = self.left = 0

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                rows = head.decode("latin-1").split("\r\n")
                headers = dict(row.lower().split(": ", 1) for row in rows[1:] if ": " in row)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(rows[0], headers, body, writer)
                if headers.get("connection") == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, line: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        if line.startswith("GET /health "):
            return await say(writer, b"")
        if line.startswith("POST /v1/embeddings "):  # says what it holds
            return await say(writer, json.dumps({"asked": self.asked, "left": self.left}).encode())
        self.asked += 1
        if b'"stream": true' not in body:
            await asyncio.sleep(self.gap_s)
            said = {"replica": self.name, "model": self.model, "key": headers.get("authorization"), "bytes": len(body)}
            return await say(writer, json.dumps(said).encode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for number in range(TOKENS if b'"endless": true' not in body else 10**6):
                chunk = b"data: %d %s\n\n" % (number, self.name.encode())
                writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                await writer.drain()
                await asyncio.sleep(self.gap_s)
        except ConnectionError:
            self.left += 1
            raise
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


async def say(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def serve(options: argparse.Namespace) -> None:
    replica = Replica(options.name, options.model, options.gap)
    server = await asyncio.start_server(replica.client, "127.0.0.1", options.port, limit=1 << 26)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("name")
    parser.add_argument("--model", default="")
    parser.add_argument("--gap", type=float, default=0.005)
    asyncio.run(serve(parser.parse_args()))
