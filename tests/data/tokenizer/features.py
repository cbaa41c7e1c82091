#!/usr/bin/env python3
"""Writes what PyPI `tokenizers` makes of many strings, for each part that a tokenizer.json may have.

Needs the PyPI packages tokenizers and zstandard, and no model:
    python features.py

features.json.zst  {tokenizers: its version,
                    texts: [...],
                    pre_tokenizers: [{name, json, words: by text}],  the file's pre_tokenizer, and the words
                    normalizers: [{name, json, texts: by text, hashes}],  `hashes`: FNV-1a of each 4096 code points, each
                                     normalized by itself and followed by a line end
                    models: [{name, json, ids: by text, decoded: by text}]}  a whole file, trained here on a few
                                     lines; `decoded` is null where ids do not come back as the text that was cut;
                                     with `own_texts` in place of the texts, and `plain`: ids with special tokens
                                     as text

The strings are a third of generate.py's. Everything is seeded: the same packages give the same file.
"""

import json
import random

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers as pre, trainers

from generate import CODE, PROSE, texts, write_compressed

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER +
          r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + SUFFIX + r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER +
         "*" + SUFFIX + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
               r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPARK = DEEPSEEK_V3.replace(r"+[\r\n]*|\s*[\r\n]+|", r"+|[\r\n]|")
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿ\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386"
    "\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134"
    "\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def split(pattern, behavior="isolated", invert=False):
    return pre.Split(pattern, behavior, invert)


def regex(pattern, behavior="isolated", invert=False):
    return split(Regex(pattern), behavior, invert)


def pre_tokenizer_table():
    """Those of GGUF, by name: as the models' tokenizer.json have them, before ByteLevel spells the bytes."""
    return {
        "llama-bpe": regex(LLAMA3), "qwen2": regex(QWEN2), "qwen35": regex(QWEN35), "tekken": regex(TEKKEN),
        "gpt-4o": regex(O200K),
        "deepseek-v3": pre.Sequence([regex(r"\p{N}{1,3}"), regex(HAN_AND_KANA), regex(DEEPSEEK_V3)]),
        "spark2_5": pre.Sequence([regex(r"\p{N}{1,3}"), regex(HAN_AND_KANA), regex(SPARK), regex(r"\p{N}")]),
        "deepseek-coder": pre.Sequence([regex("[\r\n]"), regex(r"\s?\p{L}+"), regex(r"\s?\p{P}+"),
                                        regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), regex(r"\p{N}")]),
        "deepseek-llm": pre.Sequence([
            regex("[\r\n]"), regex(r"\s?[" + DEEPSEEK_LETTERS + "]+"),
            regex("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), regex(r"\s+$"),
            regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), pre.Digits(True)]),
        "default": pre.Sequence([
            regex(r"[\p{P}\$\+<=>\^~\|]+"),
            regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            regex(r"\p{N}+"), regex("[0-9][0-9][0-9]")]),
    }


def pre_tokenizer_parts():
    """Those that only a tokenizer.json can say. None of them spells bytes."""
    found = {}
    for behavior in BEHAVIORS:
        for invert in (False, True):
            found[f"split text {behavior} {invert}"] = split(" ", behavior, invert)
            found[f"split regex {behavior} {invert}"] = regex(r"\p{L}{1,3}|[0-9]|\s\s", behavior, invert)
        found[f"split empty {behavior}"] = regex(r"(?=(?:\d{3})+(?!\d))|x*", behavior)
        found[f"punctuation {behavior}"] = pre.Punctuation(behavior)
    found["split lines"] = regex(r"^.{1,9}$|(?<=\p{Han})\p{P}")
    found["split special text"] = split("a|.*(", "isolated")
    found["split scripts"] = regex(r"[\p{Hiragana}\p{Katakana}]+|\p{Cyrillic}+|\p{Arabic}+|\P{Latin}\u0301?", "contiguous")
    for one_by_one in (False, True):
        found[f"digits {one_by_one}"] = pre.Digits(one_by_one)
    for scheme in ("always", "first", "never"):
        for splits in (False, True):
            found[f"metaspace {scheme} {splits}"] = pre.Metaspace("\u2581", scheme, splits)
    found["metaspace other"] = pre.Metaspace("_", "always", True)
    found["whitespace"] = pre.Whitespace()
    found["whitespace split"] = pre.WhitespaceSplit()
    found["sequence"] = pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation("merged_with_next"), pre.Digits(False),
                                      pre.Metaspace("\u2581", "always", True)])
    return found


def words_of(pre_tokenizer, strings):
    return [[word for word, _ in pre_tokenizer.pre_tokenize_str(text)] for text in strings]


def pre_tokenizer_golden(strings):
    found = []
    for name, one in {**pre_tokenizer_table(), **pre_tokenizer_parts()}.items():
        said = json.loads(one.__getstate__())
        found.append({"name": name, "json": said, "words": words_of(one, strings)})
    return found


MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(pre_tokenizer, decoder, special=("<unk>", "<s>", "</s>"), size=400, normalizer=None, **options):
    """A BPE of characters, without a token for many of those in the strings."""
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    fallback = BYTES if options.get("byte_fallback") else []
    tokenizer.train_from_iterator(PROSE[:12] + CODE, trainers.BpeTrainer(
        vocab_size=size + len(fallback), show_progress=False, special_tokens=list(special) + fallback))
    # The trainer makes added tokens of the bytes; in real files they are of the vocabulary alone.
    said = json.loads(tokenizer.to_str())
    said["added_tokens"] = [token for token in said["added_tokens"] if token["content"] not in fallback]
    return said


def metaspace(scheme="always", split=True):
    return pre.Metaspace(MARK, scheme, split)


def model_parts():
    found = {}
    to_spaces = decoders.Metaspace(MARK, "always", True)
    sentencepiece = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    found["characters vanish"] = trained(metaspace(), to_spaces)
    found["characters unknown"] = trained(metaspace(), to_spaces, unk_token="<unk>")
    found["characters fused"] = trained(metaspace(), to_spaces, unk_token="<unk>", fuse_unk=True)
    found["byte fallback"] = trained(metaspace("first"), sentencepiece, unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True)
    some = json.loads(json.dumps(found["byte fallback"]))
    for byte in BYTES[0xe1:0xe4] + BYTES[0xf0:]:  # those with these bytes are unknown
        place = some["model"]["vocab"].pop(byte)
        some["model"]["vocab"][f"<removed {byte[1:-1]}>"] = place
    found["byte fallback in part"] = some
    never = trained(metaspace("never", False), decoders.Metaspace(MARK, "never", False), unk_token="<unk>")
    found["never split"] = never
    whole = json.loads(json.dumps(found["characters unknown"]))
    whole["model"]["ignore_merges"] = True
    whole["model"]["merges"] = whole["model"]["merges"][:20]
    found["ignore merges"] = whole
    strings_of_merges = json.loads(json.dumps(found["characters fused"]))
    strings_of_merges["model"]["merges"] = [" ".join(pair) for pair in strings_of_merges["model"]["merges"]]
    found["merges as strings"] = strings_of_merges
    llama2 = trained(None, sentencepiece, normalizer=normalizers.Sequence([
        normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]), unk_token="<unk>", fuse_unk=True,
        byte_fallback=True)
    found["as Llama 2"] = llama2
    found["NFC and bytes"] = trained(pre.ByteLevel(False, use_regex=True), decoders.ByteLevel(),
                                     normalizer=normalizers.NFC())
    found["spaces in tokens"] = trained(pre.Split(Regex(r"\s*\S+"), "isolated"), decoders.Fuse(), unk_token="<unk>")
    found["strip and replace"] = trained(
        metaspace("never"), decoders.Sequence([decoders.Strip(MARK, 1, 0), decoders.Replace("e", "\u00e9\u00e9")]))
    spelled = Tokenizer.from_str(json.dumps(trained(
        pre.Sequence([pre.Digits(False), pre.ByteLevel(True, use_regex=True)]), decoders.ByteLevel(),
        unk_token="<unk>", fuse_unk=True)))
    found["byte level with unknown bytes"] = json.loads(spelled.to_str())
    return found


TOKENS = ["<a>", "<b>", "<ab>", "<a><b>", "x<", "ok", "okay", "OK", "<É>", "<e\u0301>", "\u2581", "tok en", "1", "=", " - ",
          "字", "Ǆ", "<\u200d>", "\n<c>", "<c>\n"]
BESIDE = [" ", "  ", "\n", "\t\u3000", "\u0085", "\u200b", "", "a", "Z", "_", "é", "e\u0301", "9", "字", ".", "<", ">", "\u2581",
          "\u203f", "\u0301", "word", " the ", "\u00a0", "ǅ", "İ", "ΑΣ"]


def added_token_parts():
    """Tokens with every flag, beside every kind of character, before and behind each kind of normalizer."""
    rng = random.Random(7)
    bytes_ = lambda normalizer: trained(pre.ByteLevel(False, use_regex=True), decoders.ByteLevel(), normalizer=normalizer)
    marks = lambda normalizer, scheme: trained(metaspace(scheme), decoders.Metaspace(MARK, scheme, True),
                                               unk_token="<unk>", normalizer=normalizer)
    bases = {
        "bytes": bytes_(None), "bytes, NFC": bytes_(normalizers.NFC()),
        "bytes, lower case": bytes_(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])),
        "bytes, no accents": bytes_(normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])),
        "bytes, strip": bytes_(normalizers.Strip()), "marks": marks(None, "first"),
        "marks, lower case": marks(normalizers.Lowercase(), "always"),
        "marks, prepend": trained(None, decoders.Sequence([decoders.Replace(MARK, " "), decoders.Fuse()]),
                                  normalizer=normalizers.Sequence([normalizers.Prepend(MARK),
                                                                   normalizers.Replace(" ", MARK)])),
    }
    found = {}
    for name, base in bases.items():
        for turn in range(3):
            said = json.loads(json.dumps(base))
            free = max(said["model"]["vocab"].values()) + 1
            seen = set()
            normalizer = Tokenizer.from_str(json.dumps(said)).normalizer
            for content in rng.sample(TOKENS, 9):
                form = normalizer.normalize_str(content) if normalizer else content
                normalized = rng.random() < 0.5 and form != "" and form not in seen
                if normalized:
                    seen.add(form)  # two that are one in normalized text no file has
                flag = lambda: rng.random() < 0.35
                is_new = content not in said["model"]["vocab"]
                said["added_tokens"].append({
                    "id": said["model"]["vocab"].get(content, free), "content": content, "single_word": flag(),
                    "lstrip": flag(), "rstrip": flag(), "normalized": normalized,
                    # A character is no control token for Butter, even where the file makes one of it.
                    "special": is_new and rng.random() < 0.5})
                free += is_new
            own = ["".join(rng.choice(TOKENS if rng.random() < 0.5 else BESIDE) for _ in range(rng.randint(1, 9)))
                   for _ in range(150)]
            found[f"added tokens: {name} {turn}"] = (said, own)
    return found


def model_golden(chosen):
    found = []
    for name, said in {**model_parts(), **added_token_parts()}.items():
        said, own = said if isinstance(said, tuple) else (said, None)
        texts_of_it = own or chosen
        tokenizer = Tokenizer.from_str(json.dumps(said))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts_of_it]
        decoded = [tokenizer.decode(one, skip_special_tokens=False) for one in ids]
        # Bytes that are no UTF-8 are U+FFFD there, however many; Butter gives the bytes.
        decoded = [None if "\ufffd" in text else text for text in decoded]
        case = {"name": name, "json": json.loads(tokenizer.to_str()), "ids": ids, "decoded": decoded}
        if own:
            tokenizer.encode_special_tokens = True
            case["own_texts"] = own
            case["plain"] = [tokenizer.encode(text, add_special_tokens=False).ids for text in own]
        found.append(case)
    return found


def normalizer_parts():
    found = {kind: getattr(normalizers, kind)() for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")}
    for left in (False, True):
        for right in (False, True):
            found[f"strip {left} {right}"] = normalizers.Strip(left, right)
    found["prepend"] = normalizers.Prepend(MARK)
    found["replace text"] = normalizers.Replace(" ", MARK)
    found["replace regex"] = normalizers.Replace(Regex(r" {2,}|\p{N}+|x*(?=y)"), " <n> ")
    found["replace with nothing"] = normalizers.Replace("e", "")
    found["sequence"] = normalizers.Sequence([
        normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Replace(Regex(r"\s+"), " "), normalizers.Prepend("> ")])
    return found


def fnv1a(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def hashes(normalizer):
    found = []
    for low in range(0, 0x110000, 0x1000):
        block = [chr(c) for c in range(low, low + 0x1000) if not 0xd800 <= c < 0xe000]
        found.append(fnv1a("".join(normalizer.normalize_str(c) + "\n" for c in block).encode()))
    return found


def normalizer_golden(chosen):
    found = []
    for name, one in normalizer_parts().items():
        case = {"name": name, "json": json.loads(one.__getstate__()),
                "texts": [one.normalize_str(text) for text in chosen]}
        if case["json"]["type"][0] in "NL" or name == "StripAccents":
            case["hashes"] = hashes(one)
        found.append(case)
    return found


def strings():
    chosen = [text for text in texts() if len(text) <= 200]
    extra = ["1234567 12 1", "a|.*(b", "IT'S it'S 'ſ", "HTTPServer's XMLHttp", "a//\n/b", "  \n\n  x  ", "x\u2581y \u2581",
             "\u2581\u2581 a", "a\u0323\u0301\u0334\u07fd\u0301", "\u11935\u11930", "\ufdfa\u32ff", "q" + "\u0301\u0316" * 60,
             "\u1100\u1161\u11a8", "\u212b\u0344", "\u0f71\u0f72\u0f74", "ΑΣ İI", " lead", "trail ", "\u3000\u3000漢字、かな", "a\n\nb\n", "-a--b-", " - ", "_a _b"]
    return list(dict.fromkeys(extra + chosen[::3]))


def main():
    chosen = strings()
    golden = {"tokenizers": tokenizers.__version__, "texts": chosen, "pre_tokenizers": pre_tokenizer_golden(chosen),
              "normalizers": normalizer_golden(chosen), "models": model_golden(chosen)}
    write_compressed("features.json.zst", golden)
    print(f"{len(chosen)} strings, {len(golden['pre_tokenizers'])} pre-tokenizers, "
          f"{len(golden['normalizers'])} normalizers, {len(golden['models'])} models")


if __name__ == "__main__":
    main()
