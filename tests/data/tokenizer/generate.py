#!/usr/bin/env python3
"""Writes the tokenizer's test data: a vocabulary, and the ids that PyPI `tokenizers` gives for many strings.

Needs the PyPI packages gguf, tokenizers and zstandard, and the default model:
    python generate.py SmolLM2-135M-Instruct.Q4_1.gguf

vocabulary.json.zst   the file's tokenizer: {pre, tokens, types, merges, bos, eos}
golden.json.zst       {tokenizers: its version,
                       full:  [{text, ids, special}]  ids of the vocabulary above; `special` are the ids with
                              special tokens parsed, where they differ
                       small: {plain, ignore_merges: [{text, ids}]}  of small_tokenizer.json, plain (with
                              one BOS) and with model.ignore_merges
                       classes: [[first code point, class]]  runs of L (letter), N (number), S (space), O
                              (other), as the byte-level pattern sees them}
small_tokenizer.json  a tokenizer of 600 tokens trained here, as Hugging Face writes it

A text that is not well-formed UTF-8 cannot be given to `tokenizers`: such strings are decoded with
errors="replace" first, as its callers do. Everything is seeded: the same packages give the same files.
"""

import json
import pathlib
import random
import sys

import tokenizers
import zstandard
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
CONTROL = 3

PROSE = [
    "The quick brown fox jumps over the lazy dog, and doesn't look back.",
    "What is the capital of France? It's Paris, isn't it?",
    "They'll say we've seen it; I'd say he'm not sure you're right. 'twas 'S, 'T 'RE'VE don’t",
    "In 1969, 3 men flew 384,400 km to the Moon & back: ~8 days.",
    "Once upon a time there was a miller who left no more estate to the three sons he had than his mill.",
    "pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    "El niño comió piñas; ¿dónde está la canción? ¡Olé!",
    "Größe, Maß und Überfluss: Straßenbahnhaltestellenschild",
    "Où est la forêt ? L’été, ça va être génial — n’est-ce pas ?",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Đây là một câu tiếng Việt có nhiều dấu thanh điệu.", "Şişli'de İstanbul'un ılık ışığı",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت — ١٢٣٤",
    "यह एक हिन्दी वाक्य है। ०१२३ क्षत्रिय",
    "আমি বাংলায় গান গাই",
    "நான் தமிழில் எழுதுகிறேன்",
    "ఇది తెలుగు వాక్యం",
    "สวัสดีชาวโลก ประเทศไทย ๑๒๓",
    "ສະບາຍດີ",
    "მხედრული დამწერლობა",
    "Բարեւ աշխարհ",
    "ሰላም ለዓለም ፩፪፫",
    "敏捷的棕色狐狸跳过了懒狗。一二三四五",
    "いろはにほへと ちりぬるを。カタカナ ﾊﾝｶｸ",
    "키스의 고유조건은 입술끼리 만나야 하고",
    "ཨོཾ་མ་ཎི་པདྨེ་ཧཱུྃ",
    "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "𓀀𓁐 𐎀𐎁 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𠮷野家",
]
EMOJI = [
    "😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇩🇪", "❤️", "1️⃣", "🧑🏿‍🚀", "👩‍❤️‍💋‍👨", "☕️✨", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "©®™", "🫠🪿🩷",
]
MARKS = ["e\u0301", "a\u0308\u0323", "n\u0303", "Z\u0351\u036b\u0343", "\u0301", "\u0915\u094d\u0937",
         "\u05e9\u05c1",
         "i\u0307", "o\u200d\u0308", "\u1e9b\u0323", "가\u11a8", "x\u20dd"]
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\r", "\u00a0", "\u3000", "\u2003", "\u200b",
          "\u2028", "\u2029",
          "\u0085", "\u1680", "\u180e", "\u202f", "\u205f", "\ufeff", "\x0b", "\x0c", "\x1c", "\x1f",
          "\u2060"]
DIGITS = ["0", "42", "007", "3.14159", "1,000,000", "1e-9", "0xFF", "١٢٣", "४५६", "Ⅷ", "½", "²³", "①②", "㊿",
          "𝟗𝟠", "〇", "\U00011de0", "\U00016ff4", "\U00010d42", "\U0001e5f1", "9" * 40]
CODE = [
    "def f(x):\n\treturn x**2  # square\n",
    "for (int i = 0; i < n; ++i) {\n    sum += a[i];\n}\n",
    "#include <vector>\r\nint main() { return 0; }\r\n",
    "SELECT * FROM t WHERE a='it''s' AND b>=10;",
    "<div class=\"x\">&nbsp;</div><!-- c -->",
    "git commit -m 'fix: don\\'t crash' && echo $?",
    "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}", "https://example.com/a_b-c?d=e&f=%20#g",
    "x = lambda *a, **k: {**k, 'a': a}\n\n\n\n    pass",
    "// ------------------------------------------------------------------",
    "CamelCaseIdentifier snake_case_identifier kebab-case SCREAMING_CASE",
    "\\begin{equation} \\int_0^\\infty e^{-x^2} dx = \\frac{\\sqrt{\\pi}}{2} \\end{equation}",
]
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start",
    "im_end|>", "<|im_start|",
    "<<|im_start|>>", "<|im_start|><|im_start|>", "<|IM_START|>", "< |im_start|>", "<|im_\u200bstart|>",
    "<repo_name>x",
    "<reponame>", "<file_sep>", "<filename", "<gh_stars>10", "<issue_start>a<issue_comment>b<issue_closed>",
    "<jupyter_code>1+1",
    "<empty_output>", " <|im_end|> ", "a<|im_end|>b", "  <|im_end|>  x", "<|im_end|>\n\n<|im_start|>",
    "<unk>", "<s>", "</s>", "[INST]",
    "5<|im_end|>5", "don<|im_end|>'t", "\u00a0<file_sep>\u3000", "<<<<<<<<|im_end|>", "<|im_end|><|",
    "<\U0001f600|im_end|>",
]
MALFORMED = [
    b"\xff\xfe", b"abc\x80def", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"a\xed\xa0\x80b", b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    b"ok \xe2\x28\xa1 ok", b"  \xff  ", b"1\xf81", b"\xe2\x82\xac\xe2\x82", b"<|im_end|>\xff<|im_start|>",
    b"\x80" * 9,
]
CONTROLS = ["\x00", "a\x00b", "\x00\x00", "\x04", "a\x04b", "\x04\x06\x04", "x \x13 y", "!\x16!", "\x7f",
            "\x1b[0m", "\u0080\u009f", "\U00040000", "a\U000c0000b", "\U0010ffff", "\ufffe", "\ufffd"]
BLOCKS = [(0x20, 0x7f), (0xa0, 0x180), (0x370, 0x400), (0x400, 0x530), (0x590, 0x600), (0x600, 0x700),
          (0x900, 0x980),
          (0xb80, 0xc00), (0xe00, 0xe80), (0x1100, 0x1200), (0x1e00, 0x2000), (0x2000, 0x2070),
          (0x2100, 0x2200), (0x2460, 0x2500),
          (0x3040, 0x3100), (0x4e00, 0x4f00), (0xac00, 0xad00), (0xff00, 0xfff0), (0x10400, 0x10450),
          (0x1d400, 0x1d500),
          (0x1f300, 0x1f700), (0x1f900, 0x1fa00), (0x20000, 0x20100), (0x1c80, 0x1c90), (0xa7c8, 0xa7e0),
          (0x10d40, 0x10d90), (0x31350, 0x31360), (0x13460, 0x13470), (0x1e4d0, 0x1e500), (0x11f00, 0x11f60)]


def texts():
    rng = random.Random(20240917)
    out = [""]
    parts = PROSE + EMOJI + MARKS + SPACES + DIGITS + CODE + SPECIAL + CONTROLS
    out += parts + [b.decode("utf-8", "replace") for b in MALFORMED]
    words = [w for p in PROSE + CODE for w in p.split(" ")]
    # White space of every kind before, between and after words, numbers and punctuation.
    for space in SPACES:
        for left, right in (("a", "b"), ("", "b"), ("a", ""), ("1", "2"), (".", ","), ("é", "字")):
            out.append(left + space + right)
            out.append(left + space + " " + right)
    for _ in range(120):
        out.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 6))) + rng.choice(words))
        gap = "".join(rng.choice(SPACES) for _ in range(rng.randint(2, 9)))
        out.append(rng.choice(words) + gap + rng.choice(DIGITS))
    for _ in range(250):  # everything, mixed
        pick = [rng.choice(rng.choice((words, EMOJI, MARKS, SPACES, DIGITS, SPECIAL, CONTROLS, PROSE)))
                for _ in range(rng.randint(2, 9))]
        out.append(rng.choice(("", " ")).join(pick))
    for low, high in BLOCKS:  # characters of one script, then beside others
        for _ in range(8):
            run = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 24)))
            out.append(run)
            out.append(run[:4] + rng.choice((" ", "1", "a", "!", "'s", "\n")) + run[4:])
    for _ in range(60):  # bytes at random
        out.append(bytes(rng.choice((rng.randrange(256), rng.randrange(32, 127)))
                         for _ in range(rng.randint(1, 40))).decode("utf-8", "replace"))
    for length in (31, 32, 63, 64, 65, 127, 300, 1000, 3000):  # long words
        out.append("a" * length)
        out.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length)))
        out.append("".join(rng.choice(("un", "believ", "able", "ness", "tion", "ing", "er", "the"))
                           for _ in range(length // 4)))
        out.append("=" * length + "\n")
        out.append(" " * length + "x")
        out.append("\n" * (length // 8))
        out.append("字" * (length // 8))
        out.append("😀" * (length // 8))
    out.append("\n\n".join(PROSE) + "\n" + "".join(CODE))
    return list(dict.fromkeys(out))


def read_gguf(path):
    import gguf  # here: features.py imports this file and reads no model
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    return {"pre": get("pre"), "tokens": get("tokens"), "types": [int(t) for t in get("token_type")],
            "merges": get("merges"), "bos": int(get("bos_token_id")), "eos": int(get("eos_token_id"))}


def full_tokenizer(vocabulary):
    assert vocabulary["pre"] == "smollm"
    vocab = {token: i for i, token in enumerate(vocabulary["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in vocabulary["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(vocabulary["tokens"], vocabulary["types"]) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def full_golden(vocabulary):
    tokenizer = full_tokenizer(vocabulary)
    cases = []
    for text in texts():
        tokenizer.encode_special_tokens = True
        case = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(text, add_special_tokens=False).ids
        if special != case["ids"]:
            case["special"] = special
        cases.append(case)
    return cases


def train_small():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                  special_tokens=["<s>", "</s>", "<|user|>"],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(PROSE + CODE, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False, special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def small_golden(tokenizer):
    ignoring = json.loads(tokenizer.to_str())
    # A token that no merge makes: only ignore_merges can give it.
    ignoring["model"]["ignore_merges"] = True
    ignoring["model"]["merges"] = ignoring["model"]["merges"][:20]
    chosen = texts()[::5] + ["<tool>", "a<tool>b", "<s>x</s>", "<|user|>"]
    # Butter never doubles BOS; `tokenizers` does where the text begins with it.
    once = lambda ids: ids[1:] if ids[:2] == [0, 0] else ids
    encode = lambda t: [{"text": text, "ids": once(t.encode(text).ids)} for text in chosen]
    return {"plain": encode(tokenizer), "ignore_merges": encode(Tokenizer.from_str(json.dumps(ignoring)))}


def classes():
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    joins = lambda left, c: len(words.pre_tokenize_str(left + c)) == 1
    runs = []
    for code_point in range(0x110000):
        if 0xD800 <= code_point < 0xE000:
            continue
        c = chr(code_point)
        kind = "L" if joins("a", c) else "N" if joins("1", c) else "O" if joins("!", c) else "S"
        if not runs or runs[-1][1] != kind:
            runs.append([code_point, kind])
    return runs


def write_compressed(name, value):
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    (HERE / name).write_bytes(zstandard.ZstdCompressor(level=19).compress(data))


def main():
    vocabulary = read_gguf(sys.argv[1])
    small = train_small()
    (HERE / "small_tokenizer.json").write_text(small.to_str() + "\n")
    write_compressed("vocabulary.json.zst", vocabulary)
    golden = {"tokenizers": tokenizers.__version__, "full": full_golden(vocabulary),
              "small": small_golden(small), "classes": classes()}
    write_compressed("golden.json.zst", golden)
    special = sum("special" in case for case in golden["full"])
    print(f"{len(golden['full'])} strings, {special} of them with special tokens, "
          f"{len(golden['classes'])} runs of code points")


if __name__ == "__main__":
    main()
