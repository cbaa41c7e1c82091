// Regex: a compiled expression on PCRE2. MatchFinder: its matches in texts, one after the other.
//
// Matches are those that PyPI `tokenizers` finds: leftmost, the first alternative that fits, and of empty
// matches those that do not stand right behind another match.
//
// Threads: a Regex is const and free of scratch; a MatchFinder is one thread's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace butter {

class Regex {
 public:
  enum class Language {
    kTokenizerJson,  // as regex_pattern.h translates it
    kPcre2,          // ours
    kText,           // no expression: this very text
  };
  static Result<Regex> compile(std::string_view pattern, Language language);

 private:
  friend class MatchFinder;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  bool has_jit_ = false;
};

class MatchFinder {
 public:
  // The Regex must outlive it.
  explicit MatchFinder(const Regex& regex);

  // Begins anew. `text` must be well-formed UTF-8 and live for as long as matches are asked for.
  void start(std::string_view text);
  // False behind the last match, and where PCRE2 gave up: error() tells which.
  bool next(size_t* begin, size_t* end);
  // What PCRE2 says of the limit that it ran into; empty if none.
  const std::string& error() const { return error_; }

 private:
  struct FreeMatch {
    void operator()(pcre2_real_match_data_8* match) const;
  };
  const Regex* regex_;
  std::unique_ptr<pcre2_real_match_data_8, FreeMatch> match_;
  std::string_view text_;
  size_t from_ = 0;
  std::optional<size_t> last_end_;
  std::string error_;
};

}  // namespace butter
