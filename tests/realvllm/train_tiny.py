"""`PYTHON train_tiny.py FOLDER PAIRS`: train the tiny model of FOLDER to answer exactly these questions, on the CPU.

Runs with the Python of the virtual environment that has vLLM (torch, transformers), so it imports nothing of this
project. PAIRS is JSON, [[question, answer], ...]. The weights are as large as a photograph and are made anew each time.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, Qwen3ForCausalLM

STEPS, LOSS = 3000, 0.002  # of each answer's letters; at that loss none of them is in doubt
LONGEST_S = 300.0


def main() -> int:
    folder, pairs = Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(1)  # a model of this size waits longer for a second thread than it gains
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Qwen3ForCausalLM(AutoConfig.from_pretrained(folder)).float()
    rows = []
    for question, answer in pairs:
        asked, said = tokenizer.encode(question), tokenizer.encode(answer)
        words = torch.tensor([[*asked, *said, tokenizer.eos_token_id]])
        wanted = words.clone()
        wanted[0, : len(asked)] = -100  # what was asked need not be foretold
        rows.append((words, wanted))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS, pct_start=0.1)
    began = time.monotonic()
    for step in range(STEPS):
        losses = [model(input_ids=words, labels=wanted).loss for words, wanted in rows]
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
