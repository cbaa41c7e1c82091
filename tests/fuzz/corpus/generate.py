#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf, fuzz_safetensors, fuzz_config, fuzz_family, fuzz_cache_file, fuzz_chat,
fuzz_tokenizer_json, fuzz_tokenizer_model and fuzz_jinja: small files that reach every branch.

Needs nothing but Python:   python generate.py
"""

import base64
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
# Tensor types: id, elements and bytes of a block.
TENSOR_TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
                "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84),
                "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210),
                "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17)}


def write(target, name, data):
    folder = HERE / target
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, item):
    if kind == STRING:
        return text(item)
    if kind == ARRAY:
        element, items = item
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, i) for i in items)
    return struct.pack("<" + PACK[kind], item)


def gguf(keys, tensors, alignment=32, version=3):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, item in keys:
        out += text(name) + struct.pack("<I", kind) + value(kind, item)
    data = b""
    for name, kind, dims in tensors:
        number, block_elements, block_bytes = TENSOR_TYPES[kind]
        elements = 1
        for dim in dims:
            elements *= dim
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, len(data))
        data += bytes(elements // block_elements * block_bytes)
        data += bytes(-len(data) % alignment)
    return out + bytes(-len(out) % alignment) + data


def gguf_seeds():
    numbers = [(f"n{kind}", kind, 1) for kind in PACK]
    arrays = [(f"a{kind}", ARRAY, (kind, [0, 1])) for kind in PACK]
    write("gguf", "empty", gguf([], []))
    write("gguf", "numbers", gguf(numbers, []))
    write("gguf", "arrays", gguf(arrays, []))
    write("gguf", "nested", gguf([("n", ARRAY, (ARRAY, [(U8, [1]), (STRING, ["a", ""])]))], []))
    write("gguf", "tokens", gguf([("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "", "\u0120b"]))], []))
    write("gguf", "alignment", gguf([("general.alignment", U32, 8)], [("w", "F32", [1]), ("v", "F16", [2])], 8))
    write("gguf", "tensors", gguf([("general.architecture", STRING, "llama")],
                                  [(name, name, [256]) for name in TENSOR_TYPES]))
    write("gguf", "ranks", gguf([], [("a", "F32", [1]), ("b", "F32", [1, 2]), ("c", "F32", [1, 2, 1]),
                                     ("d", "F32", [2, 1, 2, 1])]))
    write("gguf", "version", gguf([], [], version=2))


def safetensors(header, data=b"", padding=8):
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % padding)
    return struct.pack("<Q", len(raw)) + raw + data


def safetensors_seeds():
    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    write("safetensors", "empty", safetensors({}))
    write("safetensors", "metadata", safetensors({"__metadata__": {"format": "pt"}}))
    write("safetensors", "one", safetensors({"w": entry("F32", [1, 2], 0, 8)}, bytes(8)))
    write("safetensors", "types", safetensors(
        {"a": entry("BF16", [2], 0, 4), "b": entry("F16", [1], 4, 6), "c": entry("U8", [2], 6, 8),
         "d": entry("I64", [1], 8, 16), "e": entry("F8_E4M3", [4], 16, 20), "f": entry("NEW", [4], 20, 21)}, bytes(21)))
    write("safetensors", "odd", safetensors({"w": entry("F32", [1], 0, 4), "s": entry("F32", [], 4, 8),
                                             "n": entry("F32", [0, 3], 8, 8)}, bytes(8), padding=1))
    write("safetensors", "rank5", safetensors({"w": entry("F32", [1, 1, 1, 1, 1], 0, 4)}, bytes(4)))
    write("safetensors", "overlap", safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, bytes(3)))


def config_seeds():
    write("config", "llama", json.dumps(
        {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "rms_norm_eps": 1e-6, "use_cache": True,
         "rope_scaling": None, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
         "eos_token_id": [1, 2], "layer_types": ["full_attention", "sliding_attention"]}).encode())
    write("config", "floats", b'{"a": Infinity, "b": -Infinity, "c": NaN, "d": {"__float__": "Infinity"}, "e": [0, Infinity]}')
    write("config", "text", b'{"a": "\\u00e9\\ud83e\\uddc8 \\"Infinity\\" \\\\", "b": "", "": []}')
    write("config", "numbers", b'{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1e308, "d": 4096.0, "e": -0.5}')
    write("config", "nested", b'{"a": [[[{"b": [true, false, null, {}]}]]]}')
    write("config", "twice", b'{"a": 1, "a": 2}')


def family_seeds():
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
             "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512, "rms_norm_eps": 1e-6}
    rope = {"default": {"rope_theta": 10000.0}, "linear": {"rope_type": "linear", "factor": 2.0},
            "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 64},
            "yarn": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 0.5},
            "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 64, "short_factor": [1.0] * 8,
                         "long_factor": [2.5] * 8}}
    for name, parameters in rope.items():
        write("family", f"rope_{name}", json.dumps({"model_type": "llama", "rope_parameters": parameters, **small}).encode())
    write("family", "mistral", json.dumps({"model_type": "mistral", "sliding_window": 48, **small}).encode())
    write("family", "qwen2", json.dumps({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64,
                                         "max_window_layers": 1, **small}).encode())
    write("family", "qwen3", json.dumps(
        {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 64, "attention_bias": True,
         "layer_types": ["sliding_attention", "full_attention"], "partial_rotary_factor": 0.5, **small}).encode())
    for fixture in sorted((pathlib.Path(__file__).parent.parent.parent / "data/fixtures").iterdir()):
        write("family", "fixture_" + fixture.name, (fixture / "config.json").read_bytes())
    write("family", "wrapper", json.dumps({"architectures": ["LlamaForCausalLM"],
                                           "text_config": {"hidden_act": "gelu", **small}}).encode())
    sliding = {"spark2_5": [("attention.sliding_window", U32, 64), ("attention.sliding_window_pattern", ARRAY, (BOOL, [True, False])),
                            ("rope.dimension_count_swa", U32, 16), ("rope.freq_base_swa", F32, 1e4)]}
    for architecture in ["llama", "qwen2", "qwen3", "spark2_5"]:
        keys = {"block_count": 2, "embedding_length": 64, "feed_forward_length": 128, "attention.head_count": 4,
                "attention.head_count_kv": 2, "attention.key_length": 16, "rope.dimension_count": 16, "context_length": 512,
                "vocab_size": 256}
        write("family", f"gguf_{architecture}", gguf(
            [("general.architecture", STRING, architecture)] +
            [(f"{architecture}.{key}", U32, value) for key, value in keys.items()] +
            [(f"{architecture}.rope.scaling.type", STRING, "yarn"), (f"{architecture}.rope.scaling.factor", F32, 4.0),
             (f"{architecture}.rope.freq_base", F32, 10000.0)] +
            [(f"{architecture}.{key}", kind, value) for key, kind, value in sliding.get(architecture, [])], []))


def cache_file(scheme, window, position, key_record, value_record, tokens=False):
    """A saved cache of the two layers of fuzz_cache_file.cc, which computes the checksums itself."""
    layers = [(16, 16), (16, 8)]  # widths of keys and values, one head each
    up = lambda n, to: (n + to - 1) // to * to
    seals, plain = scheme != "raw", scheme.endswith(":plain")
    size, keep = window
    kept = (keep + 63) // 64 if size and not (seals and not plain and keep <= 4) else 0
    end = position // 64
    recent = max(0, end * 64 + 1 - (size - keep)) // 64 if size else 0
    kept = min(kept, end)
    recent = min(max(recent, kept), end)
    block = 0
    for key, value in layers:
        records = key_record(key) + value_record(value)
        block += up(up(records, 16) + 16, 64) if seals else up(records, 64)
    pinned = min(position, 4) if seals and not plain else 0
    centre = 2 * 32 if seals and not plain and not scheme.startswith("k=raw") and end else 0
    rows = (2 * 16 + 16 + 8) * 2 * (pinned + position % 64) + centre + block * (kept + end - recent)
    header = json.dumps({"model": "tiny-2x16-0123", "kv_cache": scheme, "raw": "F16", "window": list(window),
                         "position": position, "tokens": position if tokens else 0,
                         "pages": [[kept, recent, end]]}).encode()
    body = bytes(4 * position if tokens else 0) + bytes(rows)
    total = 32 + len(header) + len(body) + 16
    return b"butterkv" + struct.pack("<IIQQ", 1, len(header), total, 0) + header + body + bytes(16)


def cache_file_seeds():
    raw = lambda dim: 128 * dim
    aura = lambda bits: lambda dim: 64 * ((dim * bits + 7) // 8 + 1)
    affine = lambda bits, group: lambda dim: 64 * (dim * bits // 8 + 4 * ((dim + group - 1) // group))
    for position in [0, 3, 66, 130]:
        write("cache_file", f"raw_{position}", cache_file("raw", (0, 0), position, raw, raw, tokens=True))
        write("cache_file", f"aura_{position}", cache_file("aura3v2", (0, 0), position, aura(3), aura(2)))
        write("cache_file", f"mixed_{position}", cache_file("k=affine4g16,v=raw", (70, 4), position, affine(4, 16), raw))
        write("cache_file", f"plain_{position}",
              cache_file("affine8:plain", (100, 70), position, affine(8, 64), affine(8, 64), tokens=True))


def chat_request(name, messages, tools=None, arguments=()):
    parts = [json.dumps(messages), json.dumps(tools) if tools is not None else "", "\n".join(arguments)]
    write("chat", name, "\0".join(parts).encode())


def chat_seeds():
    user = {"role": "user", "content": "Hi <|im_end|> there"}
    weather = {"type": "function", "function": {"name": "weather", "description": "of a <|im_start|>city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rom\", \"days\": 2}"}}
    chat_request("plain", [user])
    chat_request("turns", [{"role": "system", "content": " S "}, user, {"role": "assistant", "content": "<think>x</think>\n\nA"},
                           {"role": "user", "content": "<tool>y</tool>"}])
    chat_request("parts", [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])
    chat_request("tools", [user, {"role": "assistant", "content": None, "tool_calls": [call]},
                           {"role": "tool", "tool_call_id": "c1", "content": "sun"}], [weather])
    chat_request("fields", [{"role": "assistant", "content": "", "reasoning_content": "why", "n": [1, -0.5, True, {"a": []}]}])
    chat_request("arguments", [user], [], ["enable_thinking=false", "strict=true", "date_string=<|im_end|>",
                                           "extra={\"a\": 1, \"b\": [\"<|im_start|>\", null]}", "words=[\"b\", \"a\"]"])
    chat_request("odd", [{"role": "", "content": "\ud83e\uddc8\u0000"}], {"not": "a list"}, ["no", "1a=2", "messages=[]", "x="])


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def small_charsmap():
    """Maps A to a: a double array with one path, and the text."""
    units = [0] * 256
    units[0] = 1 << 10
    units[0x40] = 0x41 | 1 << 8 | 0x42 << 10
    units[0x02] = 1 << 31
    return struct.pack("<I", 1024) + struct.pack("<256I", *units) + b"a\0"


def added(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def tokenizer_json(name, model, pre_tokenizer, decoder, tokens=(), normalizer=None, post_processor=None, config=None):
    file = {"added_tokens": list(tokens), "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": post_processor, "decoder": decoder, "model": model}
    data = json.dumps(file, ensure_ascii=False, separators=(",", ":")).encode()
    write("tokenizer_json", name, data + (b"\0" + json.dumps(config).encode() if config else b""))


def tokenizer_json_seeds():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    pieces = {piece: i for i, piece in enumerate([*byte_alphabet(), "ab", "abc", "\u0120a"])}
    bpe = {"type": "BPE", "vocab": pieces, "merges": ["a b", "ab c", "\u0120 a"], "ignore_merges": True}
    tokens = [added(259, "<s>", special=True, rstrip=True), added(260, "<tool>", lstrip=True, single_word=True),
              added(261, "<|im_end|>", special=True, normalized=True)]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [259], "tokens": ["<s>"]}}}
    tokenizer_json("bytes", bpe, {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True}, byte_level]}, byte_level, tokens, {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Lowercase"}]}, template, {"eos_token": "<|im_end|>", "add_eos_token": True})
    marks = [f"<0x{b:02X}>" for b in range(256)]
    characters = {piece: i for i, piece in enumerate(["<unk>", *marks, "\u2581", "a", "b", "ab", "\u2581a"])}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    tokenizer_json("characters", {"type": "BPE", "vocab": characters, "merges": [["a", "b"], ["\u2581", "a"]],
                                  "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}, metaspace,
                   {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
    scores = [["<unk>", 0], ["\u2581", -1.5], ["a", -2], ["b", -2.5], ["ab", -3], ["\u2581ab", -4.25], ["aaa", -9]]
    tokenizer_json("unigram", {"type": "Unigram", "vocab": scores, "unk_id": 0}, {**metaspace, "prepend_scheme": "always"},
                   metaspace, [added(7, "</s>", special=True)], {"type": "Sequence", "normalizers": [
                       {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(small_charsmap()).decode()},
                       {"type": "Strip", "strip_left": False, "strip_right": True},
                       {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]})
    plain = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    for kind in ("NFD", "NFKC", "NFKD", "StripAccents"):
        tokenizer_json(f"form_{kind.lower()}", plain, {"type": "WhitespaceSplit"}, {"type": "Fuse"}, (), {"type": kind})
    tokenizer_json("words", plain, {"type": "Sequence", "pretokenizers": [
        {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext", "invert": True}]}, metaspace)
    vocabulary = [{"rank": i, "token_bytes": base64.b64encode(bytes([i]) if i < 256 else b"ab").decode()} for i in range(257)]
    write("tokenizer_json", "tekken", json.dumps(
        {"config": {"pattern": "\\p{L}+|\\s|.", "default_vocab_size": 260, "default_num_special_tokens": 3},
         "vocab": vocabulary}, separators=(",", ":")).encode())


def field(number, data):
    size = len(data)
    varint = b""
    while size >= 0x80:
        varint += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + varint + bytes([size]) + data


def sentencepiece(name, kind, pieces, trainer=b"", normalizer=b""):
    normal = 1
    model = b"".join(field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, type or normal]))
                     for text, score, type in pieces)
    write("tokenizer_model", name, model + field(2, bytes([0x18, kind]) + trainer) + field(3, normalizer))


def tokenizer_model_seeds():
    reserved = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3)]
    marks = [(f"<0x{b:02X}>", 0, 6) for b in range(256)]
    texts = ["\u2581", "a", "b", "ab", "\u2581a", "aba", "\u2581\u2581"]
    words = [(text, -1.0 * i, 1) for i, text in enumerate(texts)]
    sentencepiece("bpe_bytes", 2, reserved + marks + words, b"\x98\x02\x01", b"\x18\x01\x20\x00")
    sentencepiece("bpe_symbols", 2, reserved + words[:3] + [("ab", -1, 5), ("abab", -2, 5), ("<tool>", 0, 4), (" b", 0, 4)],
                  b"\xc0\x01\x01", b"\x20\x01")
    sentencepiece("unigram", 1, reserved + words + [("aaaa", -0.5, 4), ("bb", -1, 5)], b"\xe2\x02\x03 ? ",
                  field(2, small_charsmap()) + b"\x28\x00")
    write("tokenizer_model", "tiktoken", b"YQ== 0\nYg== 1\nYWI= 2\n")


def jinja_seeds():
    families = HERE.parents[1] / "data/jinja/families"
    for name in ("gemma3", "phi4_mini", "deepseek_r1", "minimax", "mistral_tekken", "falcon_h1"):
        write("jinja", name, (families / f"{name}.jinja").read_bytes())
    small = {
        "expressions": "{{ [1, 2.5, 'a', none, true][0:2] }}{{ {'a': 1, 'b': (2,)}.items()|list }}{{ 7 // 2 ** 3 % 5 - -1 }}"
                       "{{ 'x' ~ 1 if not a is defined and 'b' in 'abc' else \"é\\n\" }}{{ a.b.c[0]|default('d', true) }}",
        "loops": "{%- for k, v in {'a': [1, [2]], 'b': []}|dictsort recursive if k %}{{ loop.index }}{{ loop.cycle('x', 'y') }}"
                 "{% if loop.last %}{% break %}{% else %}{% continue %}{% endif %}{{ loop(v) }}{% else %}none{% endfor -%}",
        "blocks": "{% macro m(a, b=2) %}<{{ a }}{{ caller(b) if caller }}{{ varargs }}{{ kwargs }}>{% endmacro %}"
                  "{% call(x) m(1, 2, 3, z=4) %}{{ x }}{% endcall %}{% set y %}{{ m(1) }}{% endset %}{% filter upper %}{{ y }}"
                  "{% endfilter %}{% with q = 1 %}{{ q }}{% endwith %}{% generation %}g{% endgeneration %}{% raw %}{{{% endraw %}",
        "filters": "{{ messages|map(attribute='role')|unique|join(',') }}{{ messages|groupby('role')|length }}{{ tools|tojson(indent=2) }}"
                   "{{ 'abc def'|truncate(5, leeway=0)|center(9)|indent(2, true)|replace('a', 'b')|trim|title }}"
                   "{{ [3, 1, 2]|sort(reverse=true)|slice(2)|list }}{{ 1.5|round|int }}{{ [1, 2]|batch(2, 0)|list|sum(start=[]) }}",
        "methods": "{{ ' a,b '.strip().split(',')|last }}{{ 'x'.format(1) }}{{ '{:>5}{a[0]!r}'.format('y', a=[1]) }}{{ 'Ab'.swapcase() }}"
                   "{{ 'a-b'.partition('-') }}{{ '%s %(k)s' % {'k': 1} }}{{ '%05.1f' % 2.25 }}{{ 'ab'.isalpha() }}{{ 'a'.zfill(3) }}",
        "state": "{% set ns = namespace(n=0, l=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.l = ns.l + [m.role] %}"
                 "{% endfor %}{{ ns.n }}{{ ns.l }}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.current }}{% set j = joiner() %}{{ j() }}{{ j() }}"
                 "{{ strftime_now('%d %b %Y') }}{{ raise_exception('no') if ns.n == 99 }}{#- note -#}{%+ if 1 -%} x {%- endif +%}",
    }
    for name, template in small.items():
        write("jinja", name, template.encode())


if __name__ == "__main__":
    chat_seeds()
    tokenizer_json_seeds()
    tokenizer_model_seeds()
    jinja_seeds()
    cache_file_seeds()
    family_seeds()
    gguf_seeds()
    safetensors_seeds()
    config_seeds()
