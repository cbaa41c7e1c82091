// The table of pre-tokenizers. A new one is a new row: patterns are spelled as the model's tokenizer.json
// spells them (a row is recognised there by its stages), and names as GGUF's tokenizer.ggml.pre has them.
#include "text/pre_tokenizer.h"
#include "text/regex_classes.h"

namespace butter {
namespace {

using Kind = PreTokenizerStage::Kind;

constexpr const char* kByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Two runs of Unicode 17 are numbers for Digits, which knows a newer Unicode than the patterns do.
constexpr const char* kDigit = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
constexpr const char* kLlama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Marks belong to the word that they stand in.
constexpr const char* kQwen35 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                                R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek's and Spark's cut digits and Chinese and Japanese characters off first.
constexpr const char* kHanAndKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Letters that have a case, as DeepSeek's file lists them.
constexpr const char* kDeepseekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C})"
    R"(\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B})"
    R"(\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45})"
    R"(\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
    R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})"
    R"(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})"
    R"(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr const char* kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr const char* kDeepseekCjk = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

PreTokenizerStage isolated(const char* pattern) {
  return {Kind::kPattern, pattern};
}

std::vector<PreTokenizerRow> make_rows() {
  return {
      {{"gpt2", "gpt-2", "phi-2"}, {byte_level_stage()}},
      {{"mpt", "olmo"}, {byte_level_stage()}, false, /*nfc=*/true},
      {{"smollm", "starcoder", "refact"}, {digits_stage(true), byte_level_stage()}},
      {{"command-r"}, {digits_stage(true), byte_level_stage()}, false, /*nfc=*/true},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"},
       {isolated(kLlama3)},
       /*ignore_merges=*/true,
       false,
       /*adds_bos=*/true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {isolated(kLlama3)}},
      {{"qwen2"}, {isolated(kQwen2)}, false, /*nfc=*/true},
      {{"deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"}, {isolated(kQwen2)}},
      {{"qwen35"}, {isolated(kQwen35)}, false, /*nfc=*/true},
      {{"tekken"}, {isolated(kTekken)}, /*ignore_merges=*/true, false, /*adds_bos=*/true},
      {{"gpt-4o", "o200k", "llama4"}, {isolated(kO200k)}},
      {{"deepseek-v3"}, {isolated(R"(\p{N}{1,3})"), isolated(kHanAndKana), isolated(kDeepseekV3)}},
      {{"spark2_5"},
       {isolated(R"(\p{N}{1,3})"), isolated(kHanAndKana), isolated(kSpark), isolated(R"(\p{N})")}},
      {{"deepseek-coder"},
       {isolated(R"([\r\n])"), isolated(R"(\s?\p{L}+)"), isolated(R"(\s?\p{P}+)"), isolated(kDeepseekCjk),
        isolated(R"(\p{N})")}},
      {{"deepseek-llm"},
       {isolated(R"([\r\n])"), isolated(kDeepseekLetters), isolated(kDeepseekPunctuation),
        isolated(R"(\s+$)"), isolated(kDeepseekCjk), digits_stage(true)}},
      // What llama.cpp does where a file names no other.
      {{"default"},
       {isolated(R"([\p{P}\$\+<=>\^~\|]+)"),
        isolated(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"),
        isolated(R"(\p{N}+)"), isolated("[0-9][0-9][0-9]")}},
  };
}

}  // namespace

PreTokenizerStage byte_level_stage() {
  return isolated(kByteLevel);
}

PreTokenizerStage digits_stage(bool one_by_one) {
  return {Kind::kPattern, kDigit, one_by_one ? SplitBehavior::kIsolated : SplitBehavior::kContiguous};
}

PreTokenizerStage white_space_stage() {
  return {Kind::kPattern, R"(\s)", SplitBehavior::kRemoved};
}

PreTokenizerStage word_stage() {
  return {Kind::kPcre2, word_or_other_pattern(), SplitBehavior::kRemoved, /*invert=*/true};
}

PreTokenizerStage punctuation_stage(SplitBehavior behavior) {
  return {Kind::kPcre2, punctuation_pattern(), behavior};
}

std::span<const PreTokenizerRow> pre_tokenizer_rows() {
  static const std::vector<PreTokenizerRow>* const kRows = new std::vector<PreTokenizerRow>(make_rows());
  return *kRows;
}

}  // namespace butter
