// Operations on texts that filters and methods share. All keep content spans.
#pragma once

#include <string_view>

#include "text/jinja_builtins.h"

namespace butter::jinja {

// Charges a search for `needle` in `text` at its worst case.
Status charge_search(Runtime& runtime, std::string_view text, std::string_view needle);

// str.strip(), lstrip(), rstrip(): cuts white space, or the given characters, off the ends.
Result<Text> strip_text(Runtime& runtime, const Text& text, bool left, bool right, const Value* characters);

// str.replace(). Where content decides what is taken out of the template's own words, the whole result
// counts as content: the words that are left over are not what the template wrote.
Result<Text> replace_text(Runtime& runtime, const Text& text, const Text& from, const Text& to,
                          int64_t count);

// The text with `fill` (one character) before and behind it, until it has `width` characters; on one side
// only, where only that is wanted.
Result<Text> pad_text(Runtime& runtime, const Text& text, int64_t width, const Text& fill, bool only_before,
                      bool only_behind);

// HTML escapes of & < > " ', as markup.
Result<Text> escape_text(Runtime& runtime, const Text& text);

// The line that begins at `begin`: its end, and where the next one begins. Both are the end of the text if
// no line break follows.
struct LineEnd {
  size_t end;
  size_t next;
};
LineEnd next_line(std::string_view bytes, size_t begin);

}  // namespace butter::jinja
