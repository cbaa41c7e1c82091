// Expressions as tokenizer.json writes them (Oniguruma's Ruby syntax), translated for PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace butter {

inline constexpr size_t kMaxPatternBytes = 1 << 14;

// The same expression for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, with its classes spelled out
// (regex_classes.h). What the two languages read differently, or what is not known to be read alike, is an
// error that names it.
Result<std::string> pcre2_pattern(std::string_view pattern);

}  // namespace butter
