#!/usr/bin/env python3
"""Writes rows.f16: attention rows of the default model on prose, before RoPE.

Needs what ../quality/perplexity.py needs, whose forward pass it uses:
    python make_rows.py SmolLM2-135M-Instruct.Q4_1.gguf

For each (layer, KV head) of ROWS in turn, little-endian fp16, 64 channels a row, channel j paired with j + 32:
    keys [192], values [192] of positions 0..191, queries [24] of the KV head's first query head at 168..191
"""

import pathlib
import sys

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "quality"))
import perplexity  # noqa: E402

ROWS = [(1, 0), (12, 1), (26, 2)]
POSITIONS = 192
QUERIES = 24


class Recorder(perplexity.Llama):
    def attend(self, x, block):
        layer = int(block.split(".")[1])
        for wanted, head in ROWS:
            if wanted == layer:
                self.record(x, block, head)
        return super().attend(x, block)

    def record(self, x, block, head):
        group = self.heads // self.kv_heads
        rows = lambda name, n, i: self.linear(x, block + name).reshape(self.positions, n, self.width)[:, i]
        halves = lambda rows: np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1)
        self.recorded += [halves(rows("attn_k.weight", self.kv_heads, head)),
                          rows("attn_v.weight", self.kv_heads, head),
                          halves(rows("attn_q.weight", self.heads, head * group))[-QUERIES:]]


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    text = (HERE.parent / "text" / perplexity.TEXT).read_text(encoding="ascii")
    ids = perplexity.tokenizer_of(reader.fields).encode(text, add_special_tokens=False).ids[2000:2000 + POSITIONS]
    model = Recorder(reader, POSITIONS)
    model.recorded = []
    model.hidden(np.array(ids))
    (HERE / "rows.f16").write_bytes(b"".join(rows.astype("<f2").tobytes() for rows in model.recorded))


main()
