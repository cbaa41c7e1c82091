#include "engine/tokenizer_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;

struct Piece {
  std::string text;
  float score;
  TokenType type;
};

// <unk> 0, <s> 1, </s> 2, bytes from 3, the mark 259, a 260, b 261, ab 262, mark and ab 263.
std::vector<Piece> llama_pieces() {
  std::vector<Piece> pieces = {
      {"<unk>", 0, TokenType::kUnknown}, {"<s>", 0, TokenType::kControl}, {"</s>", 0, TokenType::kControl}};
  for (int byte = 0; byte < 256; ++byte)
    pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, TokenType::kByte});
  const std::vector<std::string> texts = {"\u2581", "a", "b", "ab", "\u2581ab"};
  for (size_t i = 0; i < texts.size(); ++i)
    pieces.push_back({texts[i], -static_cast<float>(i), TokenType::kNormal});
  return pieces;
}

GgufWriter writer_of(const std::string& model, const std::vector<Piece>& pieces) {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const Piece& piece : pieces) {
    texts.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(static_cast<int32_t>(piece.type));
  }
  GgufWriter writer;
  writer.string("general.architecture", "llama").string("tokenizer.ggml.model", model);
  writer.strings("tokenizer.ggml.tokens", texts).numbers("tokenizer.ggml.scores", scores);
  writer.numbers("tokenizer.ggml.token_type", types);
  writer.value<uint32_t>("tokenizer.ggml.bos_token_id", 1).value<uint32_t>("tokenizer.ggml.eos_token_id", 2);
  return writer;
}

// A file's tokenizer, or the sentence that says why there is none.
Result<std::unique_ptr<const Tokenizer>> tokenizer_of(const GgufWriter& writer) {
  TempDir folder;
  writer.write(folder.file("model.gguf"));
  BUTTER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder.file("model.gguf")));
  return load_tokenizer(checkpoint);
}

TEST(TokenizerSource, GgufOfKindLlamaIsASentencePieceBpe) {
  const auto made = tokenizer_of(writer_of("llama", llama_pieces()));
  ASSERT_TRUE(made) << made.error().message();
  const Tokenizer& tokenizer = **made;
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.encode("ab").value(), (Ids{1, 263}));
  EXPECT_EQ(tokenizer.encode(" b").value(), (Ids{1, 259, 259, 261}));
  EXPECT_EQ(tokenizer.encode("\u00e9").value(), (Ids{1, 259, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer.decode(Ids{263, 259, 3 + 0xC3, 3 + 0xA9}), "ab \u00e9");
}

TEST(TokenizerSource, GgufMaySayThatNoSpaceAndNoBosComeFirst) {
  GgufWriter writer = writer_of("llama", llama_pieces());
  writer.value<bool>("tokenizer.ggml.add_space_prefix", false);
  writer.value<bool>("tokenizer.ggml.add_bos_token", false);
  const auto made = tokenizer_of(writer);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ((*made)->encode("ab").value(), (Ids{262}));
}

// A charsmap that maps A to a, and nothing else: two units of the double array, and "a".
std::vector<uint8_t> small_charsmap() {
  std::vector<uint32_t> units(256);
  units[0] = 1u << 10;                         // from the root, A leads to 1 ^ 0x41
  units[0x40] = 0x41 | 1u << 8 | 0x42u << 10;  // which has a value, at 0x40 ^ 0x42
  units[0x02] = 1u << 31;                      // the text at 0
  std::vector<uint8_t> bytes(4 + units.size() * 4 + 2);
  const auto trie_bytes = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(bytes.data(), &trie_bytes, 4);
  std::memcpy(bytes.data() + 4, units.data(), trie_bytes);
  bytes[4 + trie_bytes] = 'a';
  return bytes;
}

TEST(TokenizerSource, GgufOfKindT5IsAUnigramModelWithItsCharsmap) {
  const std::vector<Piece> pieces = {{"<unk>", 0, TokenType::kUnknown},  {"<s>", 0, TokenType::kControl},
                                     {"</s>", 0, TokenType::kControl},   {"\u2581", -3, TokenType::kNormal},
                                     {"a", -2, TokenType::kNormal},      {"aa", -3, TokenType::kNormal},
                                     {"aaa", -6.5f, TokenType::kNormal}, {"\u2581a", -4, TokenType::kNormal}};
  GgufWriter writer = writer_of("t5", pieces);
  writer.numbers("tokenizer.ggml.precompiled_charsmap", small_charsmap());
  writer.value<bool>("tokenizer.ggml.remove_extra_whitespaces", true);
  const auto made = tokenizer_of(writer);
  ASSERT_TRUE(made) << made.error().message();
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.encode("  aAa  ").value(), (Ids{7, 5, 2}));
  EXPECT_EQ(tokenizer.encode("xyz").value(), (Ids{3, 0, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{7, 5}), "aaa");
}

TEST(TokenizerSource, BosComesFirstWhereLlamaCppPutsItUnasked) {
  const auto adds_bos = [](const std::string& pre) {
    GgufWriter writer;
    writer.string("general.architecture", "llama").string("tokenizer.ggml.pre", pre);
    writer.strings("tokenizer.ggml.tokens", {"<s>", "a"})
        .numbers("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1});
    writer.value<uint32_t>("tokenizer.ggml.bos_token_id", 0);
    return tokenizer_of(writer).value()->adds_bos();
  };
  EXPECT_TRUE(adds_bos("llama-bpe"));
  EXPECT_TRUE(adds_bos("tekken"));
  EXPECT_FALSE(adds_bos("smaug-bpe"));
  EXPECT_FALSE(adds_bos("qwen2"));
}

// Ids of the tokens that end a turn, of a file of these tokens behind those of llama_pieces().
Ids ends_with(const std::vector<Piece>& more, const std::function<void(GgufWriter&)>& finish = {}) {
  std::vector<Piece> pieces = llama_pieces();
  const auto first = static_cast<TokenId>(pieces.size());
  pieces.insert(pieces.end(), more.begin(), more.end());
  GgufWriter writer = writer_of("llama", pieces);
  if (finish) finish(writer);
  const auto tokenizer = tokenizer_of(writer);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message();
  Ids ends;
  for (size_t i = 0; i < more.size(); ++i) {
    const TokenId id = first + static_cast<TokenId>(i);
    if ((*tokenizer)->is_end(id)) ends.push_back(static_cast<TokenId>(i));
  }
  return ends;
}

TEST(TokenizerSource, AGgufThatDoesNotNameTheEndOfATurnHasItByItsText) {
  constexpr TokenType kControl = TokenType::kControl;
  EXPECT_EQ(ends_with({{"<|im_start|>", 0, kControl}, {"<|im_end|>", 0, kControl}}), (Ids{1}));
  EXPECT_EQ(ends_with({{"<|end|>", 0, kControl}, {"<|user|>", 0, kControl}}), (Ids{0}));
  EXPECT_EQ(ends_with({{"<|end|>", 0, kControl}, {"<|return|>", 0, kControl}}), (Ids{1}));
  EXPECT_EQ(ends_with({{"<|im_end|>", 0, TokenType::kNormal}}), Ids());
  EXPECT_EQ(ends_with({{"<|im_end|>", 0, kControl}, {"<stop>", 0, kControl}},
                      [](GgufWriter& writer) {
                        writer.value<uint32_t>("tokenizer.ggml.eot_token_id",
                                               static_cast<uint32_t>(llama_pieces().size() + 1));
                      }),
            (Ids{1}));
}

TEST(TokenizerSource, GgufThatIsWrongSaysWhatIsWrong) {
  const auto error = [](const GgufWriter& writer) { return tokenizer_of(writer).error().message(); };
  EXPECT_THAT(
      error(writer_of("bert", llama_pieces())),
      HasSubstr("tokenizer.ggml.model is 'bert', which is not one that Butter knows: gpt2, llama, t5"));
  GgufWriter writer = writer_of("t5", llama_pieces());
  writer.numbers("tokenizer.ggml.precompiled_charsmap", std::vector<int32_t>{1, 300});
  EXPECT_THAT(error(writer), HasSubstr("precompiled_charsmap holds 300; bytes are expected"));
  writer = GgufWriter();
  writer.string("general.architecture", "llama").string("tokenizer.ggml.model", "llama");
  writer.strings("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_THAT(error(writer), HasSubstr("tokenizer.ggml.scores"));
  writer.numbers("tokenizer.ggml.scores", std::vector<float>{1});
  EXPECT_THAT(error(writer), HasSubstr("2 tokens and 1 scores"));
}

// A folder of a checkpoint without weights that count.
class ModelFolder {
 public:
  ModelFolder() {
    add("config.json", R"({"model_type": "llama"})");
    const float zero = 0;
    SafetensorsWriter().floats("x", DType::kF32, {1}, {&zero, 1}).write(folder_.file("model.safetensors"));
  }
  void add(const std::string& name, const std::string& bytes) { write_test_file(folder_.file(name), bytes); }
  Result<std::unique_ptr<const Tokenizer>> tokenizer() const {
    BUTTER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder_.path()));
    return load_tokenizer(checkpoint);
  }

 private:
  TempDir folder_;
};

// A field of protobuf's wire format, shorter than 128 bytes.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string sentencepiece_model(const std::vector<Piece>& pieces) {
  std::string model;
  for (const Piece& piece : pieces) {
    std::string score(5, '\x15');
    std::memcpy(score.data() + 1, &piece.score, 4);
    model += field(1, field(1, piece.text) + score + std::string{'\x18', static_cast<char>(piece.type)});
  }
  // BPE with byte_fallback; white space stays.
  return model + field(2, std::string{'\x18', 2, '\x98', 2, 1}) + field(3, std::string{'\x20', 0});
}

TEST(TokenizerSource, AFolderMayHaveASentencePieceModel) {
  ModelFolder folder;
  EXPECT_EQ(folder.tokenizer().value(), nullptr);
  folder.add("tokenizer.model", sentencepiece_model(llama_pieces()));
  const auto made = folder.tokenizer();
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ((*made)->encode("ab  a\n").value(), (Ids{1, 263, 259, 259, 260, 3 + '\n'}));
  folder.add("tokenizer.model", "no model");
  EXPECT_THAT(folder.tokenizer().error().message(), HasSubstr("tokenizer.model: "));
  folder.add("tokenizer.model", "YQ== 0\nYg== 1\n");
  EXPECT_THAT(folder.tokenizer().error().message(), HasSubstr("tiktoken file: it has 2 byte strings"));
  folder.add("tekken.json", "{}");
  EXPECT_THAT(folder.tokenizer().error().message(),
              HasSubstr("tekken.json: config.default_vocab_size is missing"));
}

}  // namespace
}  // namespace butter
