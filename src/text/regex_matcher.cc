#include "text/regex_matcher.h"

#include "core/check.h"
#include "text/regex_pattern.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace butter {
namespace {

// Backtracking that goes on for so long is an error in place of a wait.
constexpr std::string_view kMatchLimit = "(*LIMIT_MATCH=1000000)";

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  const int length = pcre2_get_error_message(code, text, sizeof(text));
  return length < 0 ? fmt::format("error {}", code) : std::string(reinterpret_cast<const char*>(text));
}

PCRE2_SPTR subject_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}
void MatchFinder::FreeMatch::operator()(pcre2_real_match_data_8* match) const {
  pcre2_match_data_free(match);
}

Result<Regex> Regex::compile(std::string_view pattern, Language language) {
  std::string translated(pattern);
  uint32_t flags = PCRE2_UTF;
  if (language == Language::kText) {
    flags |= PCRE2_LITERAL;
  } else {
    if (language == Language::kTokenizerJson) {
      BUTTER_ASSIGN(translated, pcre2_pattern(pattern));
    }
    translated.insert(0, kMatchLimit);
    flags |= PCRE2_UCP | PCRE2_MULTILINE;
  }
  Regex made;
  int error = 0;
  PCRE2_SIZE error_at = 0;
  made.code_.reset(
      pcre2_compile(subject_of(translated), translated.size(), flags, &error, &error_at, nullptr));
  if (made.code_ == nullptr) {
    return fail(StatusCode::kUnsupported, "pattern {} does not compile: {}", shown_text(pattern),
                pcre2_message(error));
  }
  made.has_jit_ = pcre2_jit_compile(made.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return made;
}

MatchFinder::MatchFinder(const Regex& regex) : regex_(&regex), match_(pcre2_match_data_create(1, nullptr)) {
  BUTTER_CHECK(match_ != nullptr);
}

void MatchFinder::start(std::string_view text) {
  text_ = text;
  from_ = 0;
  last_end_.reset();
  error_.clear();
}

bool MatchFinder::next(size_t* begin, size_t* end) {
  while (from_ <= text_.size()) {
    // The text is known to be well formed.
    const int found = regex_->has_jit_ ? pcre2_jit_match(regex_->code_.get(), subject_of(text_), text_.size(),
                                                         from_, 0, match_.get(), nullptr)
                                       : pcre2_match(regex_->code_.get(), subject_of(text_), text_.size(),
                                                     from_, PCRE2_NO_UTF_CHECK, match_.get(), nullptr);
    if (found < 0) {
      from_ = text_.size() + 1;
      if (found != PCRE2_ERROR_NOMATCH) error_ = pcre2_message(found);
      return false;
    }
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match_.get());
    *begin = ends[0];
    *end = ends[1];
    if (*begin == *end && last_end_ == *end) {
      const std::string_view rest = text_.substr(*end);
      from_ = *end + (rest.empty() ? 1 : first_utf8_unit(rest).bytes);
      continue;
    }
    from_ = *end;
    last_end_ = *end;
    return true;
  }
  return false;
}

}  // namespace butter
