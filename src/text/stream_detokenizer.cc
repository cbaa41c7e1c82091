#include "butter/tokenizer.h"

#include "text/utf8.h"

namespace butter {
namespace {

// How many bytes at the end may still become a character.
size_t incomplete_tail_bytes(std::string_view bytes) {
  const size_t longest = bytes.size() < 3 ? bytes.size() : 3;
  for (size_t tail = longest; tail > 0; --tail) {
    const Utf8Unit unit = first_utf8_unit(bytes.substr(bytes.size() - tail));
    if (unit.state == Utf8State::kIncomplete && unit.bytes == tail) return tail;
  }
  return 0;
}

}  // namespace

std::string StreamDetokenizer::push(TokenId id) {
  DecodeOptions options = options_;
  options.continues |= begun_;
  held_ += tokenizer_->decode({&id, 1}, options);
  if (!begun_) {
    // A token may give nothing and yet be the beginning: a space that is taken away there, and there alone.
    const TokenId twice[] = {id, id};
    begun_ = !held_.empty() || !tokenizer_->decode(twice, options_).empty();
  }
  const size_t whole = held_.size() - incomplete_tail_bytes(held_);
  std::string text;
  append_replacing_malformed(std::string_view(held_).substr(0, whole), &text);
  held_.erase(0, whole);
  return text;
}

std::string StreamDetokenizer::finish() {
  std::string text;
  append_replacing_malformed(held_, &text);
  held_.clear();
  begun_ = false;
  return text;
}

}  // namespace butter
