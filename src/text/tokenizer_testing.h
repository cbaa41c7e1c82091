// The tokenizer's test data (tests/data/tokenizer, written by its generate.py), for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace butter {

// A zstd-compressed JSON file of tests/data/tokenizer.
nlohmann::json read_compressed_json(const std::string& name);

// What `tokenizers` gives, parsed once.
const nlohmann::json& golden();
// What it gives for each part of a tokenizer.json, parsed once.
const nlohmann::json& features();
// vocabulary.json.zst, parsed once: the default model's.
const nlohmann::json& full_vocabulary();
std::string small_tokenizer_json();

// The default model's tokenizer as a GGUF reader would state it. Views look into full_vocabulary().
TokenizerSpec full_spec();
// The same as a tokenizer.json; merges as strings or as pairs.
nlohmann::json full_tokenizer_json(bool merge_pairs);
const VocabularyTokenizer& full_tokenizer();

// A vocabulary of the 256 bytes and no merges, which a test adds to; views look into static storage.
TokenizerSpec byte_spec();

// What a pre-tokenizer cuts a text into.
using Words = std::vector<std::string>;
Words words_of(const PreTokenizer& pre_tokenizer, std::string_view text);

// As a row of ids for messages.
std::string shown_ids(const std::vector<TokenId>& ids);

}  // namespace butter
