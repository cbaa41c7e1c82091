#include "engine/stop_filter.h"

#include <gtest/gtest.h>

#include <random>

namespace butter {
namespace {

// All that comes out, when the text is pushed in pieces of these sizes.
std::string filtered(const std::vector<std::string>& stops, const std::string& text, size_t piece,
                     bool* stopped = nullptr) {
  StopFilter filter(stops);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece)
    out += filter.push(std::string_view(text).substr(at, piece));
  if (!filter.stopped()) out += filter.finish();
  if (stopped != nullptr) *stopped = filter.stopped();
  return out;
}

TEST(StopFilter, EndsAtTheFirstStopWhateverThePieces) {
  const std::string text = "one two\nthree END four";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    bool stopped = false;
    EXPECT_EQ(filtered({"END"}, text, piece, &stopped), "one two\nthree ");
    EXPECT_TRUE(stopped);
    EXPECT_EQ(filtered({"four", "\n"}, text, piece), "one two");
    EXPECT_EQ(filtered({"nowhere"}, text, piece, &stopped), text);
    EXPECT_FALSE(stopped);
    EXPECT_EQ(filtered({}, text, piece), text);
  }
}

TEST(StopFilter, HoldsBackOnlyWhatMayBecomeAStop) {
  StopFilter filter({"stop"});
  EXPECT_EQ(filter.push("a s"), "a ");
  EXPECT_EQ(filter.push("to"), "");
  EXPECT_EQ(filter.push("x"), "stox");
  EXPECT_EQ(filter.push("st"), "");
  EXPECT_EQ(filter.push("stop!"), "st");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
}

TEST(StopFilter, HeldTextComesAtTheEnd) {
  StopFilter filter({"</s>"});
  EXPECT_EQ(filter.push("x</s"), "x");
  EXPECT_EQ(filter.finish(), "</s");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, StopThatRepeatsItselfIsFound) {
  for (size_t piece = 1; piece <= 7; ++piece) {
    EXPECT_EQ(filtered({"aab"}, "aaaaab", piece), "aaa");
    EXPECT_EQ(filtered({"abab", "ba"}, "xabab", piece), "xa") << "what is complete first ends it";
  }
}

TEST(StopFilter, AgreesWithASearchOfTheWholeText) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const auto word = [&](size_t most) {
      std::string text(1 + random() % most, 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::vector<std::string> stops = {word(4), word(6)};
    const std::string text = word(24);
    const auto whole = [&] {
      size_t first = std::string::npos, end = std::string::npos;
      for (const std::string& stop : stops) {
        // The stop that is complete first; of two that are, the one that begins first.
        const size_t at = text.find(stop);
        if (at == std::string::npos) continue;
        const size_t ends = at + stop.size();
        if (end == std::string::npos || ends < end || (ends == end && at < first)) first = at, end = ends;
      }
      return text.substr(0, first);
    };
    EXPECT_EQ(filtered(stops, text, 1 + random() % 8), whole())
        << text << " with " << stops[0] << " and " << stops[1];
  }
}

}  // namespace
}  // namespace butter
