"""`PYTHON caller.py SETTINGS`: OpenAI's own client library keeps asking a gateway until its standard input ends.

Runs with the Python of an environment that has the library, so it imports nothing of this project. SETTINGS is JSON:
url, key, ca, chat (model, [question, answer] for whole answers, [question, answer] for streams), embed (model), clients
(what each of them asks for: stream, whole or embed), lengths (of streams, in turn; in tokens, of which the taught model
has one for each letter) and least (so many requests, also after the input's end). It retries nothing. Prints `begun`
once each client has had an answer, and what became of all requests at the end. A stream that is shorter than what was
asked for, or has another text, is cut.
"""

from __future__ import annotations

import itertools
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import openai

_DEADLINE_S = 600.0


class Tally:
    def __init__(self, clients: int) -> None:
        self.lock, self.stop, self.begun = threading.Lock(), threading.Event(), threading.Barrier(clients + 1)
        self.counts = {"whole": 0, "streamed": 0, "embedded": 0, "failed": 0, "cut": 0}
        self.tokens, self.words, self.longest_s = 0, list[str](), 0.0

    def enough(self, least: int) -> bool:
        return self.stop.is_set() and sum(self.counts.values()) >= least

    def count(self, what: str, tokens: int = 0, words: str = "", took_s: float = 0.0) -> None:
        with self.lock:
            self.counts[what] += 1
            self.tokens += tokens
            self.longest_s = max(self.longest_s, took_s)
            if words:
                self.words.append(words[:300])


def client(said: dict[str, Any]) -> openai.OpenAI:
    trusted = ssl.create_default_context(cafile=said["ca"])
    carried = openai.DefaultHttpxClient(verify=trusted)
    return openai.OpenAI(
        base_url=said["url"], api_key=said["key"], http_client=carried, max_retries=0, timeout=_DEADLINE_S
    )


def whole(api: openai.OpenAI, said: dict[str, Any], length: int) -> tuple[str, int]:
    model, (question, answer), _ = said["chat"]
    asked: Any = [{"role": "user", "content": question}]
    got = api.chat.completions.create(model=model, messages=asked, temperature=0, max_tokens=64)
    if (got.choices[0].message.content, got.model) != (answer, model):
        raise ValueError(f"{got.model} answered {got.choices[0].message.content!r}")
    return "whole", got.usage.completion_tokens if got.usage else 0


def stream(api: openai.OpenAI, said: dict[str, Any], length: int) -> tuple[str, int]:
    model, _, (question, answer) = said["chat"]
    asked: Any = [{"role": "user", "content": question}]
    parts, ends = [], None
    with api.chat.completions.create(model=model, messages=asked, temperature=0, max_tokens=length, stream=True) as got:
        for chunk in got:
            parts += [chunk.choices[0].delta.content or ""] if chunk.choices else []
            ends = (chunk.choices and chunk.choices[0].finish_reason) or ends
    if "".join(parts) != answer[:length] or ends != "length":
        raise EOFError(f"a stream ended after {len(parts)} parts with {ends}: {''.join(parts)[-40:]!r}")
    return "streamed", len(parts)


def embed(api: openai.OpenAI, said: dict[str, Any], length: int) -> tuple[str, int]:
    got = api.embeddings.create(model=said["embed"], input="A cat sleeps on the sofa.")
    if got.model != said["embed"] or not any(got.data[0].embedding):
        raise ValueError(f"{got.model} gave no vector")
    return "embedded", 0


def keep_asking(ask: Callable[..., tuple[str, int]], said: dict[str, Any], tally: Tally) -> None:
    api, first, lengths = client(said), True, itertools.cycle(said["lengths"])
    while not tally.enough(said["least"]):
        began = time.monotonic()
        try:
            what, tokens = ask(api, said, next(lengths))
            tally.count(what, tokens, took_s=time.monotonic() - began)
        except openai.APIStatusError as error:
            tally.count("failed", words=f"{error.status_code} {error.message}")
        except (openai.APIConnectionError, EOFError) as error:
            tally.count("cut", words=repr(error.__cause__ or error))
        except Exception as error:  # whatever it is, it is no answer
            tally.count("cut" if ask is stream else "failed", words=repr(error))
        if first:
            first = False
            tally.begun.wait()


def main() -> int:
    said = json.loads(sys.argv[1])
    asks = [{"stream": stream, "whole": whole, "embed": embed}[kind] for kind in said["clients"]]
    tally = Tally(len(asks))
    asking = [threading.Thread(target=keep_asking, args=(ask, said, tally)) for ask in asks]
    for each in asking:
        each.start()
    tally.begun.wait()
    print("begun", flush=True)
    sys.stdin.read()
    tally.stop.set()
    for each in asking:
        each.join()
    said_of = {"tokens": tally.tokens, "words": tally.words[:5], "longest_s": round(tally.longest_s, 1)}
    print(json.dumps({**tally.counts, **said_of}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
