// How fast text becomes ids and ids text, on one thread, with the default model's vocabulary.
//
//   bench_tokenizer [--prose=FILE] [benchmark's own options]
//
// Without a file the prose is made: 10 MB of words in sentences, the words drawn by rank (the n-th as often
// as 1/n) from 50,000 that the vocabulary's own pieces make up, so there are more rare words than a novel
// has. A file is repeated until it has 10 MB. `long_word` is a text of one megabyte without white space.
#include <benchmark/benchmark.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "butter/tokenizer.h"
#include "text/tokenizer.h"

namespace butter {
namespace {

constexpr size_t kProseBytes = 10'000'000;
constexpr size_t kDistinctWords = 50'000;
constexpr size_t kLongWordBytes = 1'000'000;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

nlohmann::json read_vocabulary() {
  const std::string packed = read_file(BUTTER_SOURCE_DIR "/tests/data/tokenizer/vocabulary.json.zst");
  std::string text(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  return nlohmann::json::parse(text);
}

Result<VocabularyTokenizer> make_tokenizer(const nlohmann::json& vocabulary) {
  TokenizerSpec spec;
  spec.pre_tokenizer = vocabulary["pre"].get<std::string>();
  for (const auto& token : vocabulary["tokens"]) spec.tokens.push_back(token.get_ref<const std::string&>());
  for (const auto& type : vocabulary["types"]) spec.types.push_back(static_cast<TokenType>(type.get<int>()));
  for (const auto& merge : vocabulary["merges"]) spec.merges.push_back(merge.get_ref<const std::string&>());
  return VocabularyTokenizer::create(spec);
}

// Words of one to three lower-case pieces of the vocabulary, commonest pieces first.
std::vector<std::string> make_words(const Tokenizer& tokenizer, std::mt19937_64& random) {
  std::vector<std::string> starts, rest;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece(tokenizer.piece(id));
    const bool spaced = piece[0] == ' ';
    const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (piece.size() < 2 || !std::all_of(piece.begin() + spaced, piece.end(), letter)) continue;
    if (spaced) {
      starts.push_back(piece.substr(1));
    } else if (piece.size() > 2) {
      rest.push_back(piece);
    }
  }
  std::vector<std::string> words = starts;
  while (words.size() < kDistinctWords)
    words.push_back(starts[random() % starts.size()] + rest[random() % rest.size()]);
  return words;
}

std::string make_prose(const Tokenizer& tokenizer) {
  std::mt19937_64 random(7);
  const std::vector<std::string> words = make_words(tokenizer, random);
  std::vector<double> weights(words.size());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1.0 / static_cast<double>(i + 2);
  std::discrete_distribution<size_t> draw(weights.begin(), weights.end());
  std::string prose;
  while (prose.size() < kProseBytes) {
    std::string sentence = words[draw(random)];
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
    for (size_t i = 5 + random() % 20; i > 0; --i) {
      if (random() % 12 == 0) sentence += ',';
      sentence += ' ' + words[draw(random)];
    }
    prose += sentence + (random() % 8 == 0 ? ".\n\n" : ". ");
  }
  return prose;
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  size_t ids = 0;
  for (auto _ : state) {
    const auto encoded = tokenizer.encode(text);
    if (!encoded) return state.SkipWithError(encoded.error().message().c_str());
    ids = encoded->size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_id"] = static_cast<double>(text.size()) / static_cast<double>(ids);
}

void stream_decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.encode(text).value();
  for (auto _ : state) {
    StreamDetokenizer stream(tokenizer);
    for (const TokenId id : ids) benchmark::DoNotOptimize(stream.push(id));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void create(benchmark::State& state, const nlohmann::json& vocabulary) {
  for (auto _ : state) benchmark::DoNotOptimize(make_tokenizer(vocabulary));
}

int run(int argc, char** argv) {
  constexpr std::string_view kProse = "--prose=";
  const nlohmann::json vocabulary = read_vocabulary();
  const auto tokenizer = make_tokenizer(vocabulary);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message().c_str());
    return 1;
  }
  std::string prose;
  if (argc > 1 && std::string_view(argv[1]).starts_with(kProse)) {
    const std::string file = read_file(argv[1] + kProse.size());
    while (!file.empty() && prose.size() < kProseBytes) prose += file;
    std::copy(argv + 2, argv + argc + 1, argv + 1);
    --argc;
  }
  if (prose.empty()) prose = make_prose(*tokenizer);
  const std::string paragraph = prose.substr(0, 1000);
  std::string long_word(kLongWordBytes, 'a');
  for (size_t i = 0; i < long_word.size(); ++i) long_word[i] = static_cast<char>('a' + i * i % 23);

  benchmark::Initialize(&argc, argv);
  const auto add = [&](const char* name, auto body) {
    benchmark::RegisterBenchmark(name, body)->Unit(benchmark::kMillisecond);
  };
  add("encode_prose", [&](benchmark::State& state) { encode(state, *tokenizer, prose); });
  add("encode_1000_bytes", [&](benchmark::State& state) { encode(state, *tokenizer, paragraph); });
  add("encode_long_word", [&](benchmark::State& state) { encode(state, *tokenizer, long_word); });
  add("stream_decode_prose", [&](benchmark::State& state) { stream_decode(state, *tokenizer, prose); });
  add("create", [&](benchmark::State& state) { create(state, vocabulary); });
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace butter

int main(int argc, char** argv) {
  return butter::run(argc, argv);
}
