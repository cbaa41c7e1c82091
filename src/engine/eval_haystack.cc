#include "engine/eval_haystack.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace butter {
namespace {

constexpr const char* kColours[] = {"amber",  "azure", "black",  "bronze", "copper", "crimson",
                                    "golden", "green", "grey",   "ivory",  "orange", "pink",
                                    "purple", "red",   "silver", "violet", "white",  "yellow"};
constexpr const char* kPlaces[] = {"bridge",  "castle", "chapel",  "cottage", "garden", "harbour",
                                   "library", "market", "mill",    "museum",  "palace", "school",
                                   "station", "temple", "theatre", "tower",   "vault",  "village"};
constexpr auto kColourCount = static_cast<int>(std::size(kColours));
constexpr auto kPlaceCount = static_cast<int>(std::size(kPlaces));

// splitmix64
uint64_t next_random(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::string Needle::statement() const {
  return fmt::format("The access code of the {} is {}.", key, value);
}
std::string Needle::question() const {
  return fmt::format("What is the access code of the {}?", key);
}
std::string Needle::answer_start() const {
  return fmt::format("The access code of the {} is", key);
}

int most_needles() {
  return kColourCount;
}

// Keys of one haystack share neither colour nor place while there are enough of those: a model that mixes up
// two red places has not forgotten anything.
std::vector<Needle> make_needles(uint64_t seed, int count, double within) {
  uint64_t state = seed;
  std::vector<int> places(kPlaceCount), colours(kColourCount);
  for (int i = 0; i < kPlaceCount; ++i) places[static_cast<size_t>(i)] = i;
  for (int i = 0; i < kColourCount; ++i) colours[static_cast<size_t>(i)] = i;
  const auto shuffle = [&state](std::vector<int>& order) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next_random(state) % i]);
  };
  shuffle(places);
  shuffle(colours);
  std::vector<Needle> needles;
  for (int j = 0; j < std::min(count, most_needles()); ++j) {
    const auto at = static_cast<size_t>(j);
    needles.push_back({fmt::format("{} {}", kColours[colours[at]], kPlaces[places[at % places.size()]]),
                       fmt::format("{}", 10000 + next_random(state) % 90000), (j + within) / count});
  }
  return needles;
}

std::string make_haystack(const Tokenizer& tokenizer, std::span<const TokenId> filler,
                          std::span<const Needle> needles) {
  std::string haystack, rest;
  size_t from = 0;
  for (const Needle& needle : needles) {
    const auto at =
        std::min(filler.size(), static_cast<size_t>(needle.depth * static_cast<double>(filler.size())));
    rest += tokenizer.decode(filler.subspan(from, std::max(at, from) - from));
    from = std::max(at, from);
    // Between words; what is left of the last one follows the fact.
    const size_t space = rest.find_last_of(" \n");
    const size_t end = space == std::string::npos ? 0 : space;
    haystack += rest.substr(0, end) + "\n\n" + needle.statement() + "\n\n";
    rest.erase(0, space == std::string::npos ? 0 : space + 1);
  }
  return haystack + rest + tokenizer.decode(filler.subspan(from));
}

bool says_value(std::string_view text, std::string_view value) {
  for (size_t at = text.find(value); at != std::string_view::npos; at = text.find(value, at + 1)) {
    const size_t end = at + value.size();
    const bool begins = at == 0 || !is_digit(text[at - 1]), ends = end == text.size() || !is_digit(text[end]);
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace butter
