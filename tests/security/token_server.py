"""Takes the place of vLLM: each request gets its first token at once; runs inside a network namespace."""

from __future__ import annotations

import asyncio

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntoken\r\n0\r\n\r\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 8000)
    print("up", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
