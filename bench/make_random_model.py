#!/usr/bin/env python3
"""Makes a model of a published shape with random weights, to measure with: bench/make_random_model.py SHAPE FOLDER.

Speed does not depend on what weights say, as long as no number overflows. Needs nothing but Python; bf16
safetensors, by the names of the model's family. Files of gigabytes, so nothing of it is committed.
"""
import json
import os
import random
import struct
import sys

SHAPES = {
    # state-spaces/mamba2-130m
    "mamba2-130m": {
        "model_type": "mamba2", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50288,
        "num_heads": 24, "head_dim": 64, "state_size": 128, "n_groups": 1, "expand": 2, "conv_kernel": 4,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "use_conv_bias": True,
        "max_position_embeddings": 65536},
    # Qwen3.5-0.8B: three gated delta rules to one attention
    "qwen3.5-0.8b": {
        "model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24, "vocab_size": 248320,
        "intermediate_size": 3584, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "partial_rotary_factor": 0.25,
        "rope_theta": 10000000, "max_position_embeddings": 65536},
    # A tenth of Qwen3-30B-A3B in depth: 128 experts, 8 of them a token
    "qwen3-moe-a3b-5layers": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 5, "vocab_size": 32000,
        "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 1000000,
        "max_position_embeddings": 65536},
}


def mamba2_tensors(c):
    inner = c["num_heads"] * c["head_dim"]
    conv = inner + 2 * c["n_groups"] * c["state_size"]
    yield "backbone.embeddings.weight", [c["vocab_size"], c["hidden_size"]], 0.02
    yield "backbone.norm_f.weight", [c["hidden_size"]], 1
    for i in range(c["num_hidden_layers"]):
        layer = f"backbone.layers.{i}."
        yield layer + "norm.weight", [c["hidden_size"]], 1
        mixer = layer + "mixer."
        yield mixer + "in_proj.weight", [inner + conv + c["num_heads"], c["hidden_size"]], 0.02
        yield mixer + "conv1d.weight", [conv, 1, c["conv_kernel"]], 0.3
        yield mixer + "conv1d.bias", [conv], 0.1
        for name in ("dt_bias", "A_log", "D"):
            yield mixer + name, [c["num_heads"]], 1
        yield mixer + "norm.weight", [inner], 1
        yield mixer + "out_proj.weight", [c["hidden_size"], inner], 0.02


def attention_tensors(c, layer, gated):
    q = c["num_attention_heads"] * c["head_dim"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    yield layer + "self_attn.q_proj.weight", [2 * q if gated else q, c["hidden_size"]], 0.02
    yield layer + "self_attn.k_proj.weight", [kv, c["hidden_size"]], 0.02
    yield layer + "self_attn.v_proj.weight", [kv, c["hidden_size"]], 0.02
    yield layer + "self_attn.o_proj.weight", [c["hidden_size"], q], 0.02
    yield layer + "self_attn.q_norm.weight", [c["head_dim"]], 1
    yield layer + "self_attn.k_norm.weight", [c["head_dim"]], 1


def delta_tensors(c, layer):
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    heads = c["linear_num_value_heads"]
    values = heads * c["linear_value_head_dim"]
    mixer = layer + "linear_attn."
    yield mixer + "in_proj_qkv.weight", [2 * keys + values, c["hidden_size"]], 0.02
    yield mixer + "in_proj_z.weight", [values, c["hidden_size"]], 0.02
    yield mixer + "in_proj_a.weight", [heads, c["hidden_size"]], 0.02
    yield mixer + "in_proj_b.weight", [heads, c["hidden_size"]], 0.02
    yield mixer + "conv1d.weight", [2 * keys + values, 1, c["linear_conv_kernel_dim"]], 0.3
    yield mixer + "A_log", [heads], 1
    yield mixer + "dt_bias", [heads], 1
    yield mixer + "norm.weight", [c["linear_value_head_dim"]], 1
    yield mixer + "out_proj.weight", [c["hidden_size"], values], 0.02


def ffn_tensors(c, prefix, width):
    yield prefix + "gate_proj.weight", [width, c["hidden_size"]], 0.02
    yield prefix + "up_proj.weight", [width, c["hidden_size"]], 0.02
    yield prefix + "down_proj.weight", [c["hidden_size"], width], 0.02


def transformer_tensors(c):
    yield "model.embed_tokens.weight", [c["vocab_size"], c["hidden_size"]], 0.02
    yield "model.norm.weight", [c["hidden_size"]], 1
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", [c["hidden_size"]], 1
        yield layer + "post_attention_layernorm.weight", [c["hidden_size"]], 1
        hybrid = c["model_type"] == "qwen3_5_text"
        if hybrid and (i + 1) % c["full_attention_interval"] != 0:
            yield from delta_tensors(c, layer)
        else:
            yield from attention_tensors(c, layer, hybrid)
        if "num_experts" not in c:
            yield from ffn_tensors(c, layer + "mlp.", c["intermediate_size"])
            continue
        yield layer + "mlp.gate.weight", [c["num_experts"], c["hidden_size"]], 0.02
        for e in range(c["num_experts"]):
            yield from ffn_tensors(c, f"{layer}mlp.experts.{e}.", c["moe_intermediate_size"])


def bf16_block(count):
    """Normal values of size 1, as the upper halves of float32."""
    values = [random.gauss(0, 1) for _ in range(count)]
    return [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]


def scaled(block, size):
    words = []
    for word in block:
        value = struct.unpack("<f", struct.pack("<I", word << 16))[0] * size
        words.append(struct.unpack("<I", struct.pack("<f", value))[0] >> 16)
    return struct.pack(f"<{len(words)}H", *words)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: {sys.argv[0]} SHAPE FOLDER, with a SHAPE of {', '.join(SHAPES)}")
    config, folder = SHAPES[sys.argv[1]], sys.argv[2]
    random.seed(1)
    tensors = list((mamba2_tensors if config["model_type"] == "mamba2" else transformer_tensors)(config))
    header, offset = {}, 0
    for name, shape, _ in tensors:
        count = 1
        for dim in shape:
            count *= dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = bf16_block(65521)  # a prime: rows of a matrix do not repeat
    blocks = {size: scaled(block, size) for size in {size for _, _, size in tensors}}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, size in tensors:
            left = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            while left > 0:
                left -= file.write(blocks[size][:left])


if __name__ == "__main__":
    main()
