#!/usr/bin/env python3
"""Prints what rounding the inputs of linear ops does to the default model: KLD(float32 || rounded), mean over 384 tokens of
each text, in nats. docs/quality.md has the result, and what the CPU kernels do because of it.

Needs the PyPI packages gguf, numpy and tokenizers, and the default model:
    python input_rounding.py SmolLM2-135M-Instruct.Q4_1.gguf

Everything but the rounding is the float32 of perplexity.py; weights are not rounded. A way of rounding is given to the inputs
of all linear ops, or of some. It takes about four minutes on two cores.
"""

import sys

import gguf
import numpy as np

from perplexity import HERE, Llama, tokenizer_of

TOKENS = 384
TEXTS = ("alice29.txt", "asyoulik.txt", "lcet10.txt")

OPS = {
    "q, k, v": ("attn_q", "attn_k", "attn_v"),
    "v alone": ("attn_v",),
    "attention output": ("attn_output",),
    "gate, up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
    "head": ("token_embd",),
}
ALL = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "token_embd")


def codes(group, largest):
    """Codes of -largest..largest with a scale for every `group` columns."""
    def rounded(x):
        y = x.reshape(-1, group)
        scale = np.maximum(np.abs(y).max(axis=1, keepdims=True) / largest, np.float32(1e-35))
        return (np.rint(y / scale) * scale).astype(np.float32).reshape(x.shape)
    return rounded


def bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def two_int8(x):
    """What int8 leaves is given a code of its own, 254 times as fine."""
    y = x.reshape(-1, 32)
    scale = np.maximum(np.abs(y).max(axis=1, keepdims=True) / 127, np.float32(1e-35))
    high = np.rint(y / scale)
    low = np.rint((y / scale - high) * 254)
    return ((high + low / 254) * scale).astype(np.float32).reshape(x.shape)


class RoundedLlama(Llama):
    rounding = {}  # by the op's name: what is done to its input

    def linear(self, x, name):
        op = name.split(".")[-2]
        return super().linear(self.rounding[op](x) if op in self.rounding else x, name)

    def log_probabilities(self, ids):
        logits = self.linear(self.hidden(ids), "token_embd.weight").astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    model = RoundedLlama(reader, TOKENS)
    tokenizer = tokenizer_of(reader.fields)
    read = lambda name: (HERE.parent / "text" / name).read_text(encoding="ascii")
    texts = [np.array(tokenizer.encode(read(name), add_special_tokens=False).ids[:TOKENS]) for name in TEXTS]
    exact = [model.log_probabilities(ids) for ids in texts]

    def show(what, rounding):
        model.rounding = rounding
        kld = [float((np.exp(p) * (p - model.log_probabilities(ids))).sum(axis=1).mean()) for ids, p in zip(texts, exact)]
        print(f"{what:36s}" + "".join(f"{value:12.2e}" for value in kld), flush=True)

    int8 = codes(32, 127)
    print(f"{'':36s}" + "".join(f"{name.split('.')[0]:>12s}" for name in TEXTS))
    for name, ops in OPS.items():
        show("int8 in groups of 32: " + name, dict.fromkeys(ops, int8))
    for what, rounding in (("int8 in groups of 32", int8), ("int8 in groups of 16", codes(16, 127)),
                           ("10 bits in groups of 32", codes(32, 511)), ("bf16", bf16), ("two int8 in groups of 32", two_int8)):
        show(what + ": all", dict.fromkeys(ALL, rounding))


if __name__ == "__main__":
    main()
