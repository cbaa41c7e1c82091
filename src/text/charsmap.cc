#include "text/charsmap.h"

#include <utf8proc.h>

#include <bit>
#include <cstring>

#include "text/characters.h"
#include "text/utf8.h"

namespace butter {
namespace {

constexpr size_t kLongestGraphemeBytes = 5;

// A unit of the double array. The same bits are a node, or the value of the one that led to it.
bool has_value(uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFu;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FFu;
}
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

}  // namespace

Result<CharsMap> CharsMap::create(std::string_view blob) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t trie_bytes = 0;
  if (blob.size() > sizeof(trie_bytes)) std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 ||
      trie_bytes >= blob.size() - sizeof(trie_bytes)) {
    return fail(
        StatusCode::kCorrupt,
        "the precompiled charsmap has {} bytes and says that {} of them are its trie; a multiple of 4 "
        "that leaves room for texts is expected",
        blob.size(), trie_bytes);
  }
  CharsMap made;
  made.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(made.units_.data(), blob.data() + sizeof(trie_bytes), trie_bytes);
  made.texts_ = blob.substr(sizeof(trie_bytes) + trie_bytes);
  if (made.texts_.back() != '\0')
    return fail(StatusCode::kCorrupt, "the texts of the precompiled charsmap do not end with a zero");
  for (size_t at = 0; at < made.texts_.size();) {
    const size_t bytes = std::strlen(made.texts_.c_str() + at);
    if (bytes > kMaxMappedBytes) {
      return fail(StatusCode::kLimit,
                  "the precompiled charsmap maps to a text of {} bytes; at most {} are expected", bytes,
                  kMaxMappedBytes);
    }
    at += bytes + 1;
  }
  return made;
}

// Calls found(Match) for each text of the map that `text` begins with, the shortest first; until it says
// false.
template <typename Found>
void CharsMap::for_each_prefix(std::string_view text, const Found& found) const {
  if (units_.empty()) return;
  uint32_t at = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= units_.size() || label_of(units_[at]) != byte) return;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (at >= units_.size() || value_of(units_[at]) >= texts_.size()) return;
    if (!found(Match{i + 1, std::string_view(texts_.c_str() + value_of(units_[at]))})) return;
  }
}

std::optional<CharsMap::Match> CharsMap::longest_prefix(std::string_view text) const {
  // No more are looked at there.
  constexpr int kMostPrefixes = 32;
  std::optional<Match> longest;
  int prefixes = 0;
  for_each_prefix(text, [&](const Match& match) {
    longest = match;
    return ++prefixes < kMostPrefixes;
  });
  return longest;
}

std::optional<CharsMap::Match> CharsMap::shortest_prefix(std::string_view text) const {
  std::optional<Match> shortest;
  for_each_prefix(text, [&](const Match& match) {
    shortest = match;
    return false;
  });
  return shortest;
}

void CharsMap::append_grapheme(std::string_view grapheme, std::string* out) const {
  if (grapheme.size() <= kLongestGraphemeBytes) {
    if (const auto match = shortest_prefix(grapheme)) {
      out->append(match->with);
      return;
    }
  }
  while (!grapheme.empty()) {
    const std::string_view character = first_character(grapheme);
    const auto match = shortest_prefix(character);
    out->append(match ? match->with : character);
    grapheme.remove_prefix(character.size());
  }
}

void CharsMap::append_as_tokenizers(std::string_view text, std::string* out) const {
  size_t begin = 0;
  utf8proc_int32_t previous = -1, state = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view character = first_character(text.substr(at));
    const auto c = static_cast<utf8proc_int32_t>(decode_utf8(character));
    if (previous >= 0 && utf8proc_grapheme_break_stateful(previous, c, &state)) {
      append_grapheme(text.substr(begin, at - begin), out);
      begin = at;
    }
    previous = c;
    at += character.size();
  }
  if (begin < text.size()) append_grapheme(text.substr(begin), out);
}

}  // namespace butter
