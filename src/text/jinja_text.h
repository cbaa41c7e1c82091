// Text: a string that knows which of its bytes came from outside the template.
//
// A chat template mixes its own words ("<|im_start|>") with what people wrote. A special token is only
// special where the template wrote it, so each Text carries the spans of its bytes that derive from message
// content, and every operation carries them on: TextBuilder is the only way to make a Text from others.
//
// Bytes are UTF-8. Positions that templates see count code points, as Python's do; a byte that is not part
// of valid UTF-8 counts as one. Functions that end in _at and the like take byte offsets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_limits.h"

namespace butter::jinja {

// Bytes [begin, end).
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Span&) const = default;
};

struct Text {
  std::string bytes;
  std::vector<Span> content;  // sorted, disjoint, not empty, not touching
  bool markup = false;        // made by |safe or |escape: "+" escapes what is added to it

  // A text whose every byte is content.
  static Text of_content(std::string bytes);
};

// Joins pieces of texts, with their spans, within a budget. Once over the budget it keeps nothing more,
// full() is true and finish() gives the error: a caller with many pieces left asks full() now and then.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget) {}

  void append(std::string_view bytes, bool is_content = false);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  void append(const Text& text, size_t begin, size_t end);
  void append(char32_t code_point, bool is_content);

  bool full() const { return !status_.has_value(); }
  const Status& status() const { return status_; }
  size_t size() const { return text_.bytes.size(); }
  Result<Text> finish();

 private:
  void add_span(size_t begin, size_t end);

  Budget* budget_;
  Text text_;
  Status status_;
  size_t charged_ = 0;
};

// One code point of a byte string. An invalid byte has length 1, valid = false and its own value.
struct CodePoint {
  char32_t value = 0;
  size_t length = 1;
  bool valid = true;
};
CodePoint code_point_at(std::string_view bytes, size_t offset);
std::string utf8_of(char32_t code_point);
// Offset of the first byte that is not UTF-8; npos if there is none.
size_t find_invalid_utf8(std::string_view bytes);

size_t count_code_points(std::string_view bytes);
// Byte offset of every code point, and the end of the text as the last element.
std::vector<size_t> code_point_offsets(std::string_view bytes);

// Whether byte `offset` of the text is content. Walks the spans; for sequential use see SpanCursor.
bool is_content_at(const Text& text, size_t offset);

// Answers is_content_at for offsets that never decrease, in constant amortised time.
class SpanCursor {
 public:
  explicit SpanCursor(const Text& text) : text_(text) {}
  bool is_content(size_t offset) {
    while (next_ < text_.content.size() && text_.content[next_].end <= offset) ++next_;
    return next_ < text_.content.size() && text_.content[next_].begin <= offset;
  }

 private:
  const Text& text_;
  size_t next_ = 0;
};

// str.isspace() of one code point.
bool is_python_space(char32_t c);
// The span left when white space (or the code points of `characters`, if not null) is cut off at the ends.
Span stripped(std::string_view bytes, bool left, bool right, const std::string_view* characters = nullptr);

}  // namespace butter::jinja
