#include "text/tokenizer_testing.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include "core/check.h"
#include "support/test_data.h"
#include "text/byte_alphabet.h"

namespace butter {

using nlohmann::json;

json read_compressed_json(const std::string& name) {
  const std::string packed = read_test_file(test_data("tokenizer/" + name));
  const auto bytes = ZSTD_getFrameContentSize(packed.data(), packed.size());
  BUTTER_CHECK(bytes != ZSTD_CONTENTSIZE_ERROR && bytes != ZSTD_CONTENTSIZE_UNKNOWN);
  std::string text(bytes, '\0');
  BUTTER_CHECK(ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size()) == text.size());
  return json::parse(text);
}

const json& golden() {
  static const json* const kGolden = new json(read_compressed_json("golden.json.zst"));
  return *kGolden;
}

const json& features() {
  static const json* const kFeatures = new json(read_compressed_json("features.json.zst"));
  return *kFeatures;
}

const json& full_vocabulary() {
  static const json* const kVocabulary = new json(read_compressed_json("vocabulary.json.zst"));
  return *kVocabulary;
}

std::string small_tokenizer_json() {
  return read_test_file(test_data("tokenizer/small_tokenizer.json"));
}

TokenizerSpec full_spec() {
  const json& vocabulary = full_vocabulary();
  TokenizerSpec spec;
  spec.pre_tokenizer = vocabulary["pre"].get<std::string>();
  for (const json& token : vocabulary["tokens"]) spec.tokens.push_back(token.get_ref<const std::string&>());
  for (const json& type : vocabulary["types"]) spec.types.push_back(*token_type_of(type.get<int64_t>()));
  for (const json& merge : vocabulary["merges"]) spec.merges.push_back(merge.get_ref<const std::string&>());
  spec.bos_id = vocabulary["bos"].get<int64_t>();
  spec.eos_id = vocabulary["eos"].get<int64_t>();
  return spec;
}

json full_tokenizer_json(bool merge_pairs) {
  const json& vocabulary = full_vocabulary();
  json vocab = json::object();
  json added = json::array();
  for (size_t id = 0; id < vocabulary["tokens"].size(); ++id) {
    const json& token = vocabulary["tokens"][id];
    vocab[token.get_ref<const std::string&>()] = id;
    if (vocabulary["types"][id] == 3) added.push_back({{"id", id}, {"content", token}, {"special", true}});
  }
  json merges = json::array();
  for (const json& merge : vocabulary["merges"]) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    merges.push_back(merge_pairs ? json::array({text.substr(0, space), text.substr(space + 1)}) : merge);
  }
  return {{"added_tokens", added},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Digits"}, {"individual_digits", true}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

const VocabularyTokenizer& full_tokenizer() {
  static const VocabularyTokenizer* const kTokenizer =
      new VocabularyTokenizer(VocabularyTokenizer::create(full_spec()).value());
  return *kTokenizer;
}

TokenizerSpec byte_spec() {
  TokenizerSpec spec;
  spec.pre_tokenizer = "gpt2";
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(spelling_of_byte(static_cast<uint8_t>(byte)));
  spec.types.assign(256, TokenType::kNormal);
  return spec;
}

Words words_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  WordReader reader(pre_tokenizer);
  reader.start(text);
  Words words;
  std::string_view word;
  while (reader.next(&word)) words.emplace_back(word);
  EXPECT_TRUE(reader.status());
  return words;
}

std::string shown_ids(const std::vector<TokenId>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

}  // namespace butter
