#!/usr/bin/env python3
"""Writes perplexity.json: what float32 arithmetic gives for the default model on 20,480 tokens of prose.

Needs the PyPI packages gguf, numpy and tokenizers, and the default model:
    python perplexity.py SmolLM2-135M-Instruct.Q4_1.gguf

Every weight is dequantised to float32; every product and sum of the forward pass is float32, except those of a
norm, of a softmax's denominator and of the negative log-likelihoods, which are float64. Nothing is shared with the
engine: the tokenizer is PyPI `tokenizers`, the linear algebra is numpy's. The text is cut into windows that do not see
each other; a window's first token is not predicted.

perplexity.json  {model, model_sha256, text, numpy, window_tokens, windows, predictions (in all),
                  id_checksum: sum of (i + 1) * id over all ids,
                  nll:         mean negative natural log-likelihood of each window's predictions,
                  perplexity:  exp of the mean over all}
"""

import hashlib
import json
import pathlib
import sys
import time

import gguf
import numpy as np
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
TEXT = "alice29.txt"
WINDOW = 2048
WINDOWS = 10
CONTROL = 3
QUERY_BLOCK = 512  # queries whose scores are held at once
LOGIT_BLOCK = 256  # positions whose logits are held at once


def tokenizer_of(fields):
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    assert get("model") == "gpt2" and get("pre") == "smollm" and not get("add_bos_token")
    tokens = get("tokens")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)},
                                     merges=[tuple(merge.split(" ")) for merge in get("merges")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)
                                  for token, kind in zip(tokens, get("token_type")) if kind == CONTROL])
    return tokenizer


class Llama:
    """A Llama of a GGUF file, in float32. Its q and k rows are permuted for rope on adjacent pairs."""

    def __init__(self, reader, positions):
        get = lambda key: reader.fields["llama." + key].contents()
        self.weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        self.layers = get("block_count")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv")
        self.epsilon = get("attention.layer_norm_rms_epsilon")
        self.width = get("embedding_length") // self.heads
        assert get("rope.dimension_count") == self.width and "output.weight" not in self.weights
        self.positions = positions  # of every window
        angles = np.arange(positions)[:, None] * get("rope.freq_base") ** (-np.arange(0, self.width, 2) / self.width)
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def norm(self, x, name):
        scale = 1.0 / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True) + self.epsilon)
        return (x * scale).astype(np.float32) * self.weights[name]

    def linear(self, x, name):
        return x @ self.weights[name].T

    def rope(self, x):
        """Rotates [heads][positions][width]."""
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * self.cos - odd * self.sin
        out[..., 1::2] = even * self.sin + odd * self.cos
        return out

    def attend(self, x, block):
        heads = lambda name, n: self.linear(x, block + name).reshape(self.positions, n, self.width).transpose(1, 0, 2)
        q = self.rope(heads("attn_q.weight", self.heads)) * np.float32(self.width ** -0.5)
        k = self.rope(heads("attn_k.weight", self.kv_heads))
        v = heads("attn_v.weight", self.kv_heads)
        out = np.empty((self.positions, self.heads, self.width), np.float32)
        for head in range(self.heads):
            kv = head // (self.heads // self.kv_heads)
            for first in range(0, self.positions, QUERY_BLOCK):
                end = min(first + QUERY_BLOCK, self.positions)
                scores = q[head, first:end] @ k[kv, :end].T
                scores[np.arange(end) > np.arange(first, end)[:, None]] = -np.inf
                p = np.exp(scores - scores.max(axis=1, keepdims=True))
                out[first:end, head] = (p @ v[kv, :end]) / p.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        return self.linear(out.reshape(self.positions, -1), block + "attn_output.weight")

    def feed_forward(self, x, block):
        gate = self.linear(x, block + "ffn_gate.weight")
        up = self.linear(x, block + "ffn_up.weight")
        return self.linear(gate / (1 + np.exp(-gate)) * up, block + "ffn_down.weight")

    def hidden(self, ids):
        """After the last norm."""
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            block = f"blk.{layer}."
            x = x + self.attend(self.norm(x, block + "attn_norm.weight"), block)
            x = x + self.feed_forward(self.norm(x, block + "ffn_norm.weight"), block)
        return self.norm(x, "output_norm.weight")

    def negative_log_likelihoods(self, ids):
        """Of ids[1:], each given those before it; float64."""
        x = self.hidden(ids)
        out = []
        for first in range(0, len(ids) - 1, LOGIT_BLOCK):
            targets = ids[first + 1:first + 1 + LOGIT_BLOCK]
            logits = self.linear(x[first:first + len(targets)], "token_embd.weight").astype(np.float64)
            top = logits.max(axis=1)
            log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
            out.append(log_sum - logits[np.arange(len(targets)), targets])
        return np.concatenate(out)


def main():
    path = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(path)
    text = (HERE.parent / "text" / TEXT).read_text(encoding="ascii")
    ids = tokenizer_of(reader.fields).encode(text, add_special_tokens=False).ids[:WINDOW * WINDOWS]
    assert len(ids) == WINDOW * WINDOWS
    model = Llama(reader, WINDOW)
    nll = []
    for window in range(WINDOWS):
        started = time.monotonic()
        values = model.negative_log_likelihoods(np.array(ids[window * WINDOW:(window + 1) * WINDOW]))
        assert len(values) == WINDOW - 1 and np.isfinite(values).all()
        nll.append(float(values.mean()))
        print(f"window {window}: nll {nll[-1]:.9f}, {time.monotonic() - started:.1f} s", flush=True)
    result = {
        "model": path.name,
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "text": TEXT,
        "numpy": np.__version__,
        "window_tokens": WINDOW,
        "windows": WINDOWS,
        "predictions": (WINDOW - 1) * WINDOWS,
        "id_checksum": sum((i + 1) * token for i, token in enumerate(ids)),
        "nll": nll,
        "perplexity": float(np.exp(np.mean(nll))),
    }
    (HERE / "perplexity.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"perplexity {result['perplexity']:.6f}")


if __name__ == "__main__":
    main()
