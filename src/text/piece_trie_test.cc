#include "text/piece_trie.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

namespace butter {
namespace {

TEST(PieceTrie, FindsWhatATextBeginsWithAndNoMore) {
  std::mt19937 random(4);
  std::set<std::string> texts;
  while (texts.size() < 300) {
    std::string text(1 + random() % 6, '\0');
    for (char& c : text) c = "ab\0\xFF"[random() % 4];
    texts.insert(text);
  }
  std::vector<PieceTrie::Piece> pieces;
  for (const std::string& text : texts) pieces.push_back({text, static_cast<int32_t>(pieces.size())});
  const PieceTrie trie(pieces);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 10, '\0');
    for (char& c : text) c = "ab\0\xFFx"[random() % 5];
    size_t expected = 0, longest = 0;
    for (size_t bytes = 1; bytes <= text.size(); ++bytes) expected += texts.contains(text.substr(0, bytes));
    trie.for_each_prefix(text, [&](size_t bytes, int32_t value) {
      EXPECT_EQ(pieces[static_cast<size_t>(value)].text, text.substr(0, bytes));
      EXPECT_GT(bytes, longest);
      longest = bytes;
      --expected;
    });
    EXPECT_EQ(expected, 0u);
    EXPECT_EQ(trie.longest_prefix_bytes(text), longest);
    EXPECT_EQ(trie.find(text) >= 0, texts.contains(text));
  }
}

TEST(PieceTrie, OfNothingFindsNothing) {
  const PieceTrie trie;
  EXPECT_TRUE(trie.empty());
  EXPECT_EQ(trie.longest_prefix_bytes("a"), 0u);
  EXPECT_EQ(trie.find(""), -1);
}

}  // namespace
}  // namespace butter
