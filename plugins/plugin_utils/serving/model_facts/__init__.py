# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model is, from its own files: config.json, headers of the weights, quantization, tokenizer."""
