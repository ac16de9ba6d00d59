"""`PYTHON train_tiny.py FOLDER KIND DATA`: train the tiny model of FOLDER to answer what a proof asks, on the CPU.

Runs with the Python of the virtual environment that has vLLM (torch, transformers), so it imports nothing of this
project. DATA is JSON: of `answers` [[question, answer], ...], of `vectors` three sentences whose first two are alike,
of `order` [question, documents, number of the right one]. The weights are as large as a photograph and are made anew
each time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity
from transformers import AutoConfig, AutoTokenizer, Qwen3ForCausalLM, Qwen3ForSequenceClassification

STEPS, LOSS = 3000, 0.002  # of each answer's letters; at that loss none of them is in doubt
LONGEST_S = 300.0
Losses = Callable[[], list[Any]]


def of_answers(folder: Path, pairs: list[list[str]]) -> tuple[Any, Losses]:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), Qwen3ForCausalLM(AutoConfig.from_pretrained(folder))
    rows = []
    for question, answer in pairs:
        asked, said = tokenizer.encode(question), tokenizer.encode(answer)
        words = torch.tensor([[*asked, *said, tokenizer.eos_token_id]])
        wanted = words.clone()
        wanted[0, : len(asked)] = -100  # what was asked need not be foretold
        rows.append((words, wanted))
    return model, lambda: [model(input_ids=words, labels=wanted).loss for words, wanted in rows]


def of_vectors(folder: Path, sentences: list[str]) -> tuple[Any, Losses]:
    """The vector of a sentence is what the last layer makes of its last token."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), Qwen3ForCausalLM(AutoConfig.from_pretrained(folder))
    rows = [torch.tensor([tokenizer.encode(sentence)]) for sentence in sentences]

    def losses() -> list[Any]:
        one, near, far = (model.model(input_ids=row).last_hidden_state[0, -1] for row in rows)
        return [1 - cosine_similarity(one, near, dim=0), cosine_similarity(one, far, dim=0).abs()]

    return model, losses


def of_order(folder: Path, said: list[Any]) -> tuple[Any, Losses]:
    question, documents, right = said
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    config.num_labels, config.pad_token_id = 1, tokenizer.pad_token_id
    model = Qwen3ForSequenceClassification(config)
    rows = [torch.tensor([tokenizer(question, document)["input_ids"]]) for document in documents]

    def losses() -> list[Any]:
        scores = [model(input_ids=row).logits[0, 0] for row in rows]
        wanted = [torch.tensor(float(at == right)) for at in range(len(rows))]
        return [binary_cross_entropy_with_logits(*pair) for pair in zip(scores, wanted, strict=True)]

    return model, losses


KINDS = {"answers": of_answers, "vectors": of_vectors, "order": of_order}


def main() -> int:
    folder, kind, data = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    torch.manual_seed(1)
    torch.set_num_threads(1)  # a model of this size waits longer for a second thread than it gains
    model, losses_of = KINDS[kind](folder, data)
    model.float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS, pct_start=0.1)
    began = time.monotonic()
    for step in range(STEPS):
        losses = losses_of()
        optimizer.zero_grad()
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        worst = max(loss.item() for loss in losses)
        if step % 50 == 0:
            print(f"step {step}: {worst:.4f}, {time.monotonic() - began:.0f} s", flush=True)
        if worst < LOSS:
            break
        if time.monotonic() - began > LONGEST_S:
            print(f"after {LONGEST_S:g} s the loss is {worst:.4f}, wanted is {LOSS}", file=sys.stderr)
            return 1
    model.save_pretrained(folder)
    print(f"trained in {step + 1} steps and {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
