#include "text/jinja_text.h"

#include <algorithm>

namespace butter::jinja {

Text Text::of_content(std::string bytes) {
  Text text;
  text.bytes = std::move(bytes);
  if (!text.bytes.empty()) text.content.push_back({0, text.bytes.size()});
  return text;
}

void TextBuilder::add_span(size_t begin, size_t end) {
  if (!text_.content.empty() && text_.content.back().end == begin) {
    text_.content.back().end = end;
    return;
  }
  text_.content.push_back({begin, end});
  // Spans are memory that a template can cause as well.
  if (Status status = budget_->use_bytes(sizeof(Span)); !status) status_ = status;
}

void TextBuilder::append(std::string_view bytes, bool is_content) {
  if (bytes.empty() || full()) return;
  const size_t begin = text_.bytes.size();
  const size_t end = begin + bytes.size();
  // Charged in whole blocks, so that a text built of single characters costs one check for each of them
  // and no arithmetic that could disagree with its final size by more than a block.
  if (end > charged_) {
    const size_t charge = std::max(end - charged_, std::min<size_t>(charged_, 4096));
    if (Status status = budget_->use_bytes(charge); !status) {
      status_ = status;
      return;
    }
    charged_ += charge;
  }
  if (end > budget_->limits().max_output_bytes) {
    status_ = budget_->use_text(end);
    return;
  }
  text_.bytes.append(bytes);
  if (is_content) add_span(begin, end);
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  if (text.content.empty()) return append(std::string_view(text.bytes).substr(begin, end - begin), false);
  const std::string_view bytes = text.bytes;
  auto span = std::lower_bound(text.content.begin(), text.content.end(), begin,
                               [](const Span& s, size_t offset) { return s.end <= offset; });
  size_t at = begin;
  for (; span != text.content.end() && span->begin < end && !full(); ++span) {
    const size_t first = std::max(span->begin, begin);
    const size_t last = std::min(span->end, end);
    append(bytes.substr(at, first - at), false);
    append(bytes.substr(first, last - first), true);
    at = last;
  }
  append(bytes.substr(at, end - at), false);
}

void TextBuilder::append(char32_t code_point, bool is_content) {
  append(utf8_of(code_point), is_content);
}

Result<Text> TextBuilder::finish() {
  BUTTER_TRY(status_);
  return std::move(text_);
}

CodePoint code_point_at(std::string_view bytes, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const CodePoint invalid = {lead, 1, false};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() - offset < length) return invalid;
  char32_t value = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return invalid;
    value = (value << 6) | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return invalid;
  return {value, length, true};
}

std::string utf8_of(char32_t c) {
  std::string out;
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
  return out;
}

size_t find_invalid_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = code_point_at(bytes, i);
    if (!c.valid) return i;
    i += c.length;
  }
  return std::string_view::npos;
}

size_t count_code_points(std::string_view bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes.size(); i += code_point_at(bytes, i).length) ++count;
  return count;
}

std::vector<size_t> code_point_offsets(std::string_view bytes) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < bytes.size(); i += code_point_at(bytes, i).length) offsets.push_back(i);
  offsets.push_back(bytes.size());
  return offsets;
}

bool is_content_at(const Text& text, size_t offset) {
  return SpanCursor(text).is_content(offset);
}

bool is_python_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

namespace {

bool is_cut(std::string_view bytes, size_t offset, size_t length, const std::string_view* characters) {
  const std::string_view piece = bytes.substr(offset, length);
  if (characters == nullptr) {
    const CodePoint c = code_point_at(bytes, offset);
    return c.valid && is_python_space(c.value);
  }
  for (size_t i = 0; i < characters->size();) {
    const size_t step = code_point_at(*characters, i).length;
    if (characters->substr(i, step) == piece) return true;
    i += step;
  }
  return false;
}

// Start of the code point that ends at `end`: at most three bytes are stepped over.
size_t previous_code_point(std::string_view bytes, size_t end) {
  for (size_t length = 1; length <= std::min<size_t>(4, end); ++length) {
    const CodePoint c = code_point_at(bytes.substr(0, end), end - length);
    if (c.valid && c.length == length) return end - length;
  }
  return end - 1;
}

}  // namespace

Span stripped(std::string_view bytes, bool left, bool right, const std::string_view* characters) {
  Span span = {0, bytes.size()};
  while (left && span.begin < span.end) {
    const size_t length = code_point_at(bytes, span.begin).length;
    if (!is_cut(bytes, span.begin, length, characters)) break;
    span.begin += length;
  }
  while (right && span.end > span.begin) {
    const size_t previous = previous_code_point(bytes, span.end);
    if (!is_cut(bytes, previous, span.end - previous, characters)) break;
    span.end = previous;
  }
  return span;
}

}  // namespace butter::jinja
