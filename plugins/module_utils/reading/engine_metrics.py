# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of other engines under the names that vLLM has for them: rules, dashboards and detectors know these.

A series that vLLM has no name for stays as it is. The names are those of SGLang 0.5.23 (the source of its collector)
and of llama.cpp 0c1e570 (what its server showed), read 2026-11-28.
"""

from __future__ import annotations

import re

_NAMES = {
    "sglang": {
        "num_running_reqs": "num_requests_running",
        "num_queue_reqs": "num_requests_waiting",
        "token_usage": "kv_cache_usage_perc",
        "generation_tokens_total": "generation_tokens_total",
        "prompt_tokens_total": "prompt_tokens_total",
        "time_to_first_token_seconds": "time_to_first_token_seconds",
        "inter_token_latency_seconds": "inter_token_latency_seconds",
        "num_retracted_requests_total": "num_preemptions_total",
    },
    "llamacpp": {
        "requests_processing": "num_requests_running",
        "requests_deferred": "num_requests_waiting",
        "tokens_predicted_total": "generation_tokens_total",
        "prompt_tokens_total": "prompt_tokens_total",
        "spec_decode_num_drafts_total": "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total": "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total": "spec_decode_num_accepted_tokens_total",
    },
}
_SERIES = r"^(sglang|llamacpp):(\w+?)(_bucket|_sum|_count)?(?=[{ ])"
# Of an answer that does not stream SGLang counts all of it as the time to its first token.
_WHOLE_ANSWERS = r'^sglang:time_to_first_token_seconds\w*\{[^\n]*is_streaming="false"[^\n]*\n?'


def in_names_of_vllm(text: str) -> str:
    """Return the same text with the series of SGLang and llama.cpp renamed."""
    if "sglang:" not in text and "llamacpp:" not in text:
        return text
    text = re.sub(_WHOLE_ANSWERS, "", text, flags=re.MULTILINE)
    return re.sub(_SERIES, _renamed, text, flags=re.MULTILINE)


def _renamed(found: re.Match[str]) -> str:
    known = _NAMES[found[1]]
    whole = found[2] + (found[3] or "")
    if whole in known:
        return f"vllm:{known[whole]}"
    return f"vllm:{known[found[2]]}{found[3]}" if found[3] and found[2] in known else found[0]
