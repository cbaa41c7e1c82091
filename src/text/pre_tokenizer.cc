#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace butter {
namespace {

// Letters and numbers that Unicode 15, 15.1 and 16 added, for a PCRE2 that knows Unicode 14; a newer one
// loses nothing by them. With these, all code points fall into the classes that they have in PyPI
// `tokenizers` (a test holds this).
constexpr std::string_view kNewLetters =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65})"
    R"(\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B})"
    R"(\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02})"
    R"(\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA})"
    R"(\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A})"
    R"(\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
    R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr std::string_view kNewNumbers =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";
// White_Space. PCRE2's own \s also takes U+180E, which lost the property with Unicode 6.3.
constexpr std::string_view kWhiteSpace = R"(\t-\r\x{85}\p{Z})";

// Spells out the classes of a pattern of the table, so that they do not depend on the library's Unicode.
std::string with_pinned_classes(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  const auto put_class = [&](std::string_view open, std::initializer_list<std::string_view> members) {
    if (!in_class) out += open;
    for (const std::string_view member : members) out += member;
    if (!in_class) out += ']';
  };
  while (!pattern.empty()) {
    const auto take = [&](std::string_view text) {
      if (!pattern.starts_with(text)) return false;
      pattern.remove_prefix(text.size());
      return true;
    };
    if (take(R"(\s)")) {
      put_class("[", {kWhiteSpace});
    } else if (!in_class && take(R"(\S)")) {
      put_class("[^", {kWhiteSpace});
    } else if (take(R"(\p{L})")) {
      put_class("[", {R"(\p{L})", kNewLetters});
    } else if (take(R"(\p{N})")) {
      put_class("[", {R"(\p{N})", kNewNumbers});
    } else {
      const size_t bytes = pattern[0] == '\\' && pattern.size() > 1 ? 2 : 1;
      if (bytes == 1 && pattern[0] == '[') in_class = true;
      if (bytes == 1 && pattern[0] == ']') in_class = false;
      out += pattern.substr(0, bytes);
      pattern.remove_prefix(bytes);
    }
  }
  return out;
}

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  const int length = pcre2_get_error_message(code, text, sizeof(text));
  return length < 0 ? fmt::format("error {}", code) : std::string(reinterpret_cast<const char*>(text));
}

PCRE2_SPTR subject_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

void PreTokenizer::FreeCode::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}
void WordReader::FreeMatch::operator()(pcre2_real_match_data_8* match) const {
  pcre2_match_data_free(match);
}

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  for (const PreTokenizerRow& row : pre_tokenizer_rows()) {
    if (std::ranges::find(row.names, name) != row.names.end()) return create(row.names[0], row.stages);
  }
  return fail(StatusCode::kUnsupported, "pre-tokenizer '{}' is not one that Butter knows: {}",
              name.substr(0, 64), names());
}

Result<PreTokenizer> PreTokenizer::create(std::string_view name, std::span<const std::string_view> stages) {
  PreTokenizer made;
  made.name_ = name;
  for (const std::string_view stage : stages) {
    const std::string pattern = with_pinned_classes(stage);
    int error = 0;
    PCRE2_SIZE error_at = 0;
    std::unique_ptr<pcre2_real_code_8, FreeCode> code(pcre2_compile(
        subject_of(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error, &error_at, nullptr));
    if (code == nullptr) {
      return fail(StatusCode::kUnsupported, "pattern {} of pre-tokenizer '{}' does not compile: {}", stage,
                  name, pcre2_message(error));
    }
    const bool has_jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
    made.stages_.push_back({std::move(code), has_jit});
  }
  return made;
}

std::string PreTokenizer::names() {
  std::vector<std::string_view> shown;
  for (const PreTokenizerRow& row : pre_tokenizer_rows()) shown.push_back(row.names[0]);
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::optional<std::string_view> PreTokenizer::name_of(std::span<const std::string_view> stages) {
  for (const PreTokenizerRow& row : pre_tokenizer_rows()) {
    if (std::ranges::equal(row.stages, stages)) return row.names[0];
  }
  return std::nullopt;
}

WordReader::WordReader(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(pre_tokenizer) {
  cuts_.resize(pre_tokenizer.stages_.size());
  for (Cut& cut : cuts_) {
    cut.match.reset(pcre2_match_data_create(1, nullptr));
    BUTTER_CHECK(cut.match != nullptr);
  }
}

WordReader::~WordReader() = default;

void WordReader::start(std::string_view text) {
  text_ = text;
  text_pending_ = !text.empty();
  status_ = {};
  for (Cut& cut : cuts_) {
    cut.piece = {};
    cut.at = 0;
    cut.match_end = 0;
  }
}

bool WordReader::next(std::string_view* word) {
  return next_of_stage(cuts_.size(), word);
}

// The next piece that the first `stage` stages leave.
bool WordReader::next_of_stage(size_t stage, std::string_view* piece) {
  if (stage == 0) {
    *piece = text_;
    return std::exchange(text_pending_, false);
  }
  Cut& cut = cuts_[stage - 1];
  if (cut.at == cut.piece.size()) {
    if (!next_of_stage(stage - 1, &cut.piece)) {
      cut.piece = {};
      cut.at = 0;
      return false;
    }
    cut.at = 0;
    cut.match_end = 0;
  }
  const size_t begin = cut.at;
  if (cut.match_end > begin) {
    cut.at = cut.match_end;
  } else {
    const auto [match_begin, match_end] = find_match(stage - 1);
    if (!status_) return false;
    // A match that begins further on ends a piece of its own first.
    cut.at = match_begin == begin ? match_end : match_begin;
    cut.match_end = match_end;
  }
  *piece = cut.piece.substr(begin, cut.at - begin);
  return true;
}

std::pair<size_t, size_t> WordReader::find_match(size_t stage) {
  const PreTokenizer::Stage& how = pre_tokenizer_.stages_[stage];
  const Cut& cut = cuts_[stage];
  // The text is known to be well formed, and an empty match would be no step forward.
  const int found = how.has_jit ? pcre2_jit_match(how.code.get(), subject_of(cut.piece), cut.piece.size(),
                                                  cut.at, PCRE2_NOTEMPTY, cut.match.get(), nullptr)
                                : pcre2_match(how.code.get(), subject_of(cut.piece), cut.piece.size(), cut.at,
                                              PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, cut.match.get(), nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return {cut.piece.size(), cut.piece.size()};
  if (found < 0) {
    status_ = fail(StatusCode::kLimit, "pre-tokenizer '{}' gives up on a text of {} bytes: {}",
                   pre_tokenizer_.name_, cut.piece.size(), pcre2_message(found));
    return {cut.at, cut.at};
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(cut.match.get());
  return {ends[0], ends[1]};
}

}  // namespace butter
