#!/usr/bin/env python3
"""Writes what PyPI `sentencepiece` and `tokenizers` make of many strings, with small vocabularies of pieces.

Needs the PyPI packages sentencepiece, protobuf, tiktoken, tokenizers and zstandard, and no model:
    python pieces.py

pieces.json.zst  {sentencepiece, tokenizers: their versions,
                  texts: [...],
                  sentencepiece_models: [{name, model: hex of the file, ids: by text, decoded: by text}],
                  tokenizer_files: [{name, json, ids, decoded}],  Unigram models of tokenizer.json
                  charsmap: hex, mapped: by text,  what the Precompiled normalizer makes of the texts
                  tekken: {json, ids}}  a vocabulary of tiktoken's kind, in Mistral's file

The models are trained here on a few lines. `decoded` is null where bytes that are no UTF-8 come out. Everything
is seeded: the same packages give the same file.
"""

import base64
import io
import json
import random
import tempfile
import unicodedata

import sentencepiece as spm
import tiktoken
import tokenizers
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers as pre, trainers

from features import MARK, TEKKEN, strings
from generate import CODE, PROSE, write_compressed

LINES = PROSE[:14] + CODE
SYMBOLS = ["<sep>", "<sep><sep>", "▁▁", "▁▁▁▁", "ﬁ", "a b", "the", "\n", "漢字", "<tool_call>"]
PIECE = proto.ModelProto.SentencePiece


def texts():
    rng = random.Random(11)
    out = [" ", "   ", " a", "a ", "  a  b  ", "▁", "▁▁a", "<s>", "</s>x<unk>", "<0x41>", "<0x0A>", "a\tb\nc\r\nd",
           "ﬁne ﬂour ﷺ ㍿", "ｆｕｌｌ　ｗｉｄｔｈ", "e\u0301\u0323 e\u0301", "\u200b\u200c\ufeff\u00ad x", "\u1100\u1161\u11a8 \u0e01\u0e33",
           "🇫🇷 👨‍👩‍👧 ☕️", "a\u0600b \u0600a", "\x00\x01\x02\x7f", "x\u0301\u0302\u0303\u0304\u0305\u0306", "½ ⅓ ²", "a" * 300,
           "the" * 60, "<sep>" * 9, " " * 50 + "x" + " " * 50, "＜sep＞", "a b a  b", "thethe  the the", "\r\n\r\n", "𝔘𝔫𝔦"]
    parts = SYMBOLS + [" ", "  ", "\u3000", "x", "é", "word", "ing", ".", "字", "ﬀ", "①"]
    out += ["".join(rng.choice(parts) for _ in range(rng.randint(1, 12))) for _ in range(150)]
    return list(dict.fromkeys(out + strings()[::2]))


def rules_file(chosen):
    """Characters of the texts whose NFKC differs, and a few rules of more than one."""
    rules = {}
    for c in sorted({c for text in chosen for c in text}):
        mapped = unicodedata.normalize("NFKC", c)
        if mapped != c:
            rules[c] = mapped
    for c in "\t\n\r\u3000\u00a0":
        rules[c] = " "
    rules |= {"\x01": "", "\u200b": " ", "e\u0301": "é", "e\u0301\u0323": "ẹ", "\r\n": "  ", "a\u0600": "[x]", "\ufeff": ""}
    file = tempfile.NamedTemporaryFile("w", suffix=".tsv")
    for source, target in sorted(rules.items()):
        code = lambda text: " ".join(f"{ord(c):X}" for c in text)
        file.write(f"{code(source)}\t{code(target)}\n")
    file.flush()
    return file


def train(kind, size=420, lines=None, **options):
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines or LINES), model_writer=out, model_type=kind, vocab_size=size,
        hard_vocab_limit=False, minloglevel=2, character_coverage=options.pop("coverage", 0.995), num_threads=1, **options)
    return proto.ModelProto.FromString(out.getvalue())


def change(model, changing):
    copy = proto.ModelProto.FromString(model.SerializeToString())
    changing(copy)
    return copy


def with_unused(model):
    rng = random.Random(3)
    for piece in model.pieces:
        if piece.type == PIECE.NORMAL and len(piece.piece) > 1 and rng.random() < 0.3:
            piece.type = PIECE.UNUSED


def with_ties(model):
    for piece in model.pieces:
        piece.score = -float(int(-piece.score) // 8)


def without_characters(model):
    """Longer pieces whose characters are no pieces: what a pruned vocabulary may have."""
    rng = random.Random(5)
    kept = [p for p in model.pieces if p.type != PIECE.NORMAL or len(p.piece) > 1 or rng.random() < 0.7]
    del model.pieces[:]
    model.pieces.extend(kept)


def unescaped(model):
    model.normalizer_spec.escape_whitespaces = False
    for piece in model.pieces:
        if piece.type == PIECE.NORMAL:
            piece.piece = piece.piece.replace(MARK, " ")


def positive(model):
    for at, piece in enumerate(model.pieces):
        piece.score += 9 if at % 3 else 0


def sentencepiece_models(rules):
    tsv = dict(normalization_rule_tsv=rules.name)
    plain = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
    llama = train("bpe", 700, byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, **plain)
    mapped = train("bpe", user_defined_symbols=SYMBOLS, control_symbols=["<ctl>"], unk_surface=" <?> ", **tsv)
    t5 = train("unigram", **tsv)
    return {
        "bpe as Llama 2": llama,
        "bpe as Gemma": train("bpe", 700, byte_fallback=True, add_dummy_prefix=False, user_defined_symbols=SYMBOLS, **plain),
        "bpe, mapped": mapped,
        "bpe, ties": change(llama, with_ties),
        "bpe, unused": change(llama, with_unused),
        "bpe, unused and unknown": change(mapped, with_unused),
        "bpe, without characters": change(mapped, without_characters),
        "bpe, suffix": train("bpe", treat_whitespace_as_suffix=True, **tsv),
        "bpe, spaces as they are": change(llama, unescaped),
        "unigram as T5": t5,
        "unigram, bytes": train("unigram", 700, byte_fallback=True, **plain),
        "unigram, symbols": train("unigram", user_defined_symbols=SYMBOLS, add_dummy_prefix=False, **tsv),
        "unigram, suffix": train("unigram", treat_whitespace_as_suffix=True, **tsv),
        "unigram, unused": change(t5, with_unused),
        "unigram, large scores": change(t5, positive),
        "unigram, without characters": change(t5, without_characters),
    }


def no_bad_utf8(text):
    return None if "\ufffd" in text else text


def sentencepiece_golden(chosen, rules):
    found = []
    for name, model in sentencepiece_models(rules).items():
        model.normalizer_spec.ClearField("normalization_rule_tsv")
        processor = spm.SentencePieceProcessor(model_proto=model.SerializeToString())
        ids = [processor.encode(text) for text in chosen]
        found.append({"name": name, "model": model.SerializeToString().hex(), "ids": ids,
                      "decoded": [no_bad_utf8(processor.decode(one)) for one in ids]})
    return found


def unigram_file(model, normalizer, scheme, decoder, byte_fallback=False):
    vocabulary = [(piece.piece, piece.score) for piece in model.pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 0, byte_fallback))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre.Metaspace(MARK, scheme, True)
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def tokenizer_files(by_name):
    charsmap = by_name["unigram as T5"].normalizer_spec.precompiled_charsmap
    mapped = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(False, True),
                                   normalizers.Replace(Regex(" {2,}"), MARK)])
    spaces = decoders.Metaspace(MARK, "always", True)
    fallback = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                  decoders.Strip(" ", 1, 0)])
    t5, of_bytes = by_name["unigram as T5"], by_name["unigram, bytes"]
    found = {
        "unigram as T5": unigram_file(t5, mapped, "always", spaces),
        "unigram, prefix once": unigram_file(t5, normalizers.Precompiled(charsmap), "first", spaces),
        "unigram, no prefix": unigram_file(t5, None, "never", decoders.Metaspace(MARK, "never", True)),
        "unigram, bytes": unigram_file(of_bytes, None, "always", fallback, True),
        "unigram, large scores": unigram_file(by_name["unigram, large scores"], mapped, "always", spaces),
        "unigram, without characters": unigram_file(by_name["unigram, without characters"], mapped, "always", spaces),
    }
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre.Metaspace(MARK, "always", False)
    trained.decoder = spaces
    trained.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=300, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>", seed_size=3000))
    found["unigram, trained there"] = trained
    return found


def tokenizers_golden(chosen, by_name):
    found = []
    for name, tokenizer in tokenizer_files(by_name).items():
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in chosen]
        decoded = [no_bad_utf8(tokenizer.decode(one, skip_special_tokens=False)) for one in ids]
        found.append({"name": name, "json": json.loads(tokenizer.to_str()), "ids": ids, "decoded": decoded})
    return found


def tekken_golden(chosen):
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre.ByteLevel(False, use_regex=True)
    trained.train_from_iterator(PROSE + CODE, trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=sorted(pre.ByteLevel.alphabet())))
    to_bytes = {c: bytes([b]) for b, c in zip(range(256), byte_alphabet())}
    pieces = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    spelled = [b"".join(to_bytes[c] for c in piece) for piece, _ in pieces]
    spelled = sorted(spelled[:256]) + spelled[256:]
    special, left_out = 30, 20
    size = special + len(spelled) - left_out
    ranks = {piece: rank for rank, piece in enumerate(spelled[:len(spelled) - left_out])}
    encoding = tiktoken.Encoding("small", pat_str=TEKKEN, mergeable_ranks=ranks, special_tokens={})
    file = {"config": {"pattern": TEKKEN, "num_vocab_tokens": len(spelled), "default_vocab_size": size,
                       "default_num_special_tokens": special, "version": "v3"},
            "vocab": [{"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
                      for rank, piece in enumerate(spelled)]}
    return {"json": file, "ids": [[i + special for i in encoding.encode_ordinary(text)] for text in chosen]}


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def main():
    chosen = texts()
    rules = rules_file(chosen)
    of_files = sentencepiece_golden(chosen, rules)
    by_name = {one["name"]: proto.ModelProto.FromString(bytes.fromhex(one["model"])) for one in of_files}
    charsmap = by_name["unigram as T5"].normalizer_spec.precompiled_charsmap
    precompiled = normalizers.Precompiled(charsmap)
    golden = {"sentencepiece": spm.__version__, "tokenizers": tokenizers.__version__, "texts": chosen,
              "sentencepiece_models": of_files, "tokenizer_files": tokenizers_golden(chosen, by_name),
              "charsmap": charsmap.hex(), "mapped": [precompiled.normalize_str(text) for text in chosen],
              "tekken": tekken_golden(chosen)}
    write_compressed("pieces.json.zst", golden)
    print(f"{len(chosen)} strings, {len(of_files)} SentencePiece models, {len(golden['tokenizer_files'])} tokenizer.json")


if __name__ == "__main__":
    main()
