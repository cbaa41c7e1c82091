#include "text/jinja_unicode.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace butter::jinja {
namespace {

// Code points first, first + stride, ..., last map to themselves + delta.
struct CaseRange {
  char32_t first;
  char32_t last;
  int stride;
  int delta;
};

// A code point that maps to several; unused places are 0.
struct CaseSpecial {
  char32_t from;
  char32_t to[3];
};

struct CodePointRun {
  char32_t first;
  char32_t last;
};

// first, first + stride, ..., last.
struct CodePointStride {
  char32_t first;
  char32_t last;
  char32_t stride;
};

#include "text/jinja_unicode_tables.inc"

struct CaseMap {
  std::span<const CaseRange> ranges;
  std::span<const CaseSpecial> special;
  char32_t ascii_first;  // the ASCII letters that it changes, by xor 0x20
  char32_t ascii_last;
};

constexpr CaseMap kUpper = {kUpperRanges, kUpperSpecial, 'a', 'z'};
constexpr CaseMap kLower = {kLowerRanges, kLowerSpecial, 'A', 'Z'};
constexpr CaseMap kTitle = {kTitleRanges, kTitleSpecial, 'a', 'z'};
constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

const CaseSpecial* find_special(const CaseMap& map, char32_t c) {
  const auto row = std::lower_bound(map.special.begin(), map.special.end(), c,
                                    [](const CaseSpecial& s, char32_t value) { return s.from < value; });
  return row != map.special.end() && row->from == c ? &*row : nullptr;
}

// Where c goes, if it goes to one code point; itself if nothing is known of it.
char32_t map_single(const CaseMap& map, char32_t c) {
  if (c < 0x80) return c >= map.ascii_first && c <= map.ascii_last ? c ^ 0x20 : c;
  const auto row = std::lower_bound(map.ranges.begin(), map.ranges.end(), c,
                                    [](const CaseRange& r, char32_t value) { return r.last < value; });
  if (row == map.ranges.end() || c < row->first || (c - row->first) % row->stride != 0) return c;
  return static_cast<char32_t>(static_cast<int64_t>(c) + row->delta);
}

void append_mapped(TextBuilder& out, const CaseMap& map, char32_t c, bool is_content) {
  if (c >= 0x80) {
    if (const CaseSpecial* special = find_special(map, c)) {
      for (const char32_t to : special->to) {
        if (to != 0) out.append(to, is_content);
      }
      return;
    }
  }
  out.append(map_single(map, c), is_content);
}

bool is_among(std::span<const CodePointRun> runs, char32_t c) {
  const auto run = std::ranges::lower_bound(runs, c, {}, &CodePointRun::last);
  return run != runs.end() && run->first <= c;
}

bool is_among(std::span<const CodePointStride> runs, char32_t c) {
  const auto run = std::ranges::lower_bound(runs, c, {}, &CodePointStride::last);
  return run != runs.end() && run->first <= c && (c - run->first) % run->stride == 0;
}

bool next_is_cased(std::string_view bytes, size_t offset) {
  if (offset >= bytes.size()) return false;
  const CodePoint c = code_point_at(bytes, offset);
  return c.valid && is_cased(c.value);
}

}  // namespace

bool is_cased(char32_t c) {
  return map_single(kUpper, c) != c || map_single(kLower, c) != c || find_special(kUpper, c) != nullptr ||
         find_special(kLower, c) != nullptr;
}

bool is_upper(char32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : is_among(kUppercase, c);
}
bool is_lower(char32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : is_among(kLowercase, c);
}
bool is_title(char32_t c) {
  return c >= 0x80 && is_among(kTitlecase, c);
}
bool is_alphabetic(char32_t c) {
  return c < 0x80 ? is_upper(c) || is_lower(c) : is_among(kAlphabetic, c);
}
bool is_decimal(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : is_among(kDecimal, c);
}
bool is_digit(char32_t c) {
  return is_decimal(c) || (c >= 0x80 && is_among(kDigit, c));
}
bool is_numeric(char32_t c) {
  return is_digit(c) || (c >= 0x80 && is_among(kNumeric, c));
}
bool is_alphanumeric(char32_t c) {
  return is_alphabetic(c) || is_numeric(c);
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  return !is_among(kUnprintable, c);
}

Result<Text> with_case(Budget& budget, const Text& text, Case wanted) {
  TextBuilder out(budget);
  SpanCursor cursor(text);
  bool after_cased = false;
  for (size_t i = 0; i < text.bytes.size() && !out.full();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool is_content = cursor.is_content(i);
    const size_t next = i + c.length;
    if (!c.valid) {
      out.append(std::string_view(text.bytes).substr(i, 1), is_content);
    } else if (wanted == Case::kUpper || (wanted == Case::kSwapped && is_lower(c.value))) {
      append_mapped(out, kUpper, c.value, is_content);
    } else if ((wanted == Case::kCapitalized && i == 0) || (wanted == Case::kTitle && !after_cased)) {
      append_mapped(out, kTitle, c.value, is_content);
    } else if (wanted == Case::kSwapped && !is_upper(c.value)) {
      out.append(std::string_view(text.bytes).substr(i, c.length), is_content);
    } else if (c.value == kSigma && after_cased && !next_is_cased(text.bytes, next)) {
      out.append(kFinalSigma, is_content);
    } else {
      append_mapped(out, kLower, c.value, is_content);
    }
    after_cased = c.valid && is_cased(c.value);
    i = next;
  }
  BUTTER_ASSIGN(Text result, out.finish());
  result.markup = text.markup;
  return result;
}

}  // namespace butter::jinja
