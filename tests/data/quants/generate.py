#!/usr/bin/env python3
"""Writes blocks.bin: random blocks of every weight type and the float32 values they stand for.

Needs the PyPI packages gguf and numpy:   python generate.py
The values are those of gguf.quants.dequantize. The file is a run of records, all little-endian:
  name[8] (zero padded) | row bytes: u32 | elements: u32 | row | elements x float32
Every bit of a block is random, except that 16-bit scales are finite (zeros, subnormals and the
largest number are among them): what infinity times zero gives is nobody's promise. The 8-bit exponents
of MXFP4 go up to 252, where the largest value is still finite.
"""

import pathlib
import struct

import numpy as np
from gguf import GGMLQuantizationType, GGML_QUANT_SIZES
from gguf.quants import dequantize

BLOCKS = 12
# Where the fp16 scales stand in a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
PLAIN_ELEMENTS = 512


def random_scales(rng, count):
    scales = rng.normal(0, 0.02, count).astype(np.float16)
    special = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x0400]  # zeros, subnormals, largest, smallest normal
    scales.view(np.uint16)[: len(special)] = rng.permutation(special)
    return scales


def random_exponents(rng, count):
    exponents = rng.integers(0, 253, count, dtype=np.uint8)
    special = [0, 1, 2, 127, 252]  # the two subnormal scales, the smallest normal one, a half, the largest
    exponents[: len(special)] = rng.permutation(special)
    return exponents


def main():
    rng = np.random.default_rng(20240601)
    records = []
    for name in ("F32", "F16", "BF16", *SCALES):
        kind = GGMLQuantizationType[name]
        block_elements, block_bytes = GGML_QUANT_SIZES[kind]
        if name in SCALES:
            rows = rng.integers(0, 256, (BLOCKS, block_bytes), dtype=np.uint8)
            for at in SCALES[name]:
                rows[:, at : at + 2] = random_scales(rng, BLOCKS).view(np.uint8).reshape(BLOCKS, 2)
            if name == "MXFP4":
                rows[:, 0] = random_exponents(rng, BLOCKS)
            row = rows.reshape(1, -1)
        else:
            row = rng.integers(0, 256, (1, PLAIN_ELEMENTS * block_bytes), dtype=np.uint8)
        typed = row.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
        values = dequantize(typed, kind).astype(np.float32).reshape(-1)
        assert values.size * block_bytes == row.size * block_elements
        records.append(struct.pack("<8sII", name.encode(), row.size, values.size) + row.tobytes() + values.tobytes())
    pathlib.Path(__file__).with_name("blocks.bin").write_bytes(b"".join(records))


if __name__ == "__main__":
    main()
