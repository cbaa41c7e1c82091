#!/usr/bin/env python3
"""Writes mlx/: random MLX-quantised tensors of every kind and the float32 values they stand for.

Needs the PyPI packages mlx[cpu] and numpy:   python generate_mlx.py
The file is written by mlx.core.save_safetensors, the values are those of mlx.core.dequantize with its scales
and biases widened to float32. Modules are named "b4.g64.F16" and have .weight, .scales, .biases and .values;
"fp4" has exponents, "experts" three matrices above one another. Every bit of a code is random; 16-bit scales are
finite, with zeros, subnormals, the largest and the smallest among those of F16. Exponents go up to 252, where the
largest value is still finite.
"""

import json
import pathlib

import mlx.core as mx
import numpy as np

ROWS, COLUMNS = 3, 128
TYPES = {"F16": mx.float16, "BF16": mx.bfloat16, "F32": mx.float32}


def random_scales(rng, shape, dtype, special=True):
    scales = rng.normal(0, 0.02, shape).astype(np.float16)
    if dtype == "F16" and special:
        bits = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x0400], dtype=np.uint16)
        flat = scales.reshape(-1).view(np.uint16)
        flat[: min(flat.size // 2, bits.size)] = rng.permutation(bits)[: flat.size // 2]
    if dtype == "F32":
        return mx.array(rng.normal(0, 0.02, shape).astype(np.float32))
    if dtype == "BF16":
        return mx.array(rng.normal(0, 1, shape).astype(np.float32) * np.float32(10.0) ** rng.integers(-9, 9, shape)).astype(mx.bfloat16)
    return mx.array(scales)


def main():
    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(20241128)
    tensors, config = {}, {"group_size": 64, "bits": 4}

    def add(module, bits, group, dtype, leading=(ROWS,)):
        words = mx.array(rng.integers(0, 1 << 32, (*leading, COLUMNS * bits // 32), dtype=np.uint32))
        scales = random_scales(rng, (*leading, COLUMNS // group), dtype)
        biases = random_scales(rng, (*leading, COLUMNS // group), dtype, special=False)
        values = mx.dequantize(words, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits)
        tensors.update({f"{module}.weight": words, f"{module}.scales": scales, f"{module}.biases": biases,
                        f"{module}.values": values})
        if (group, bits) != (64, 4):
            config[module] = {"group_size": group, "bits": bits}

    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            for dtype in TYPES:
                add(f"b{bits}.g{group}.{dtype}", bits, group, dtype)
    add("experts", 4, 64, "BF16", leading=(3, 2))

    words = mx.array(rng.integers(0, 1 << 32, (ROWS, COLUMNS // 8), dtype=np.uint32))
    exponents = rng.integers(0, 253, (ROWS, COLUMNS // 32), dtype=np.uint8)
    exponents.reshape(-1)[:5] = [0, 1, 2, 127, 252]
    values = mx.dequantize(words, mx.array(exponents), group_size=32, bits=4, mode="mxfp4", dtype=mx.float32)
    tensors.update({"fp4.weight": words, "fp4.scales": mx.array(exponents), "fp4.values": values})
    config["fp4"] = {"group_size": 32, "bits": 4, "mode": "mxfp4"}

    folder = pathlib.Path(__file__).with_name("mlx")
    folder.mkdir(exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps({"model_type": "none", "quantization": config}, indent=1) + "\n")


if __name__ == "__main__":
    main()
