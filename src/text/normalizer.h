// Normalizer: what a tokenizer.json does to a text before anything else, as a list of steps.
//
// The forms of Unicode are utf8proc's, for the characters that PyPI `tokenizers` knows (Unicode 9; a newer
// one is left as it is, as there). Bytes that are no UTF-8 stay where they are, and each stretch between them
// is normalized by itself.
//
// Immutable; const methods may be called from any thread at once.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/charsmap.h"
#include "text/regex_matcher.h"

namespace butter {

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,     // one character at a time
    kStripAccents,  // combining marks vanish
    kStrip,         // white space, at the ends that `left` and `right` say
    kPrepend,       // `content`, before a text that is not empty
    kReplaceText,   // each `pattern` becomes `content`
    kReplaceRegex,
    kCharsMap,  // `content` is a precompiled charsmap
  };
  Kind kind;
  std::string pattern = {};
  std::string content = {};
  bool left = false;
  bool right = false;
};

class Normalizer {
 public:
  static constexpr size_t kMaxSteps = 32;
  // A text may become so many times as long, and a megabyte.
  static constexpr size_t kMostGrowth = 64;

  Normalizer() = default;  // changes nothing
  static Result<Normalizer> create(std::span<const NormalizerStep> steps);

  // The most that may become of a text.
  static size_t most_bytes_from(std::string_view text);

  bool empty() const { return steps_.empty(); }
  // kLimit where the text grows without bound or a pattern gives up.
  Result<std::string> apply(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep what;
    std::optional<Regex> regex;
    std::optional<CharsMap> charsmap;
  };
  static Status apply_step(const Step& step, size_t most_bytes, std::string* text);
  static Status put_stretch(const Step& step, std::string_view text, size_t most_bytes, std::string* out);

  std::vector<Step> steps_;
};

}  // namespace butter
