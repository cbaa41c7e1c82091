#include "text/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace butter {
namespace {

using Ids = std::vector<int32_t>;

// Merges at random over a small alphabet, so that ties, runs and overlaps are common.
struct Grammar {
  MergeTable merges;
  SymbolTable symbols;

  Grammar(uint32_t seed, int letters, int count) : merges(static_cast<size_t>(count) + 2) {
    for (int i = 0; i < letters; ++i) symbols.byte_ids['a' + i] = i;
    std::mt19937 random(seed);
    int32_t ids = letters;
    for (int rank = 0; rank < count; ++rank) {
      const auto left = static_cast<int32_t>(random() % static_cast<uint32_t>(ids));
      const auto right = static_cast<int32_t>(random() % static_cast<uint32_t>(ids));
      if (merges.find(left, right).rank != MergeTable::kNoRank) continue;
      merges.set(left, right, {static_cast<uint32_t>(rank), ids++});
    }
  }
};

std::string random_word(std::mt19937& random, size_t bytes, int letters) {
  std::string word(bytes, 'a');
  for (char& c : word) c = static_cast<char>('a' + random() % static_cast<uint32_t>(letters));
  return word;
}

TEST(BytePairEncoder, ScanAndHeapAgree) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const int letters = 1 + static_cast<int>(seed % 4);
    const Grammar grammar(seed, letters, 60);
    BytePairEncoder encoder(grammar.merges, grammar.symbols);
    for (int round = 0; round < 50; ++round) {
      // One letter more than there are ids: bytes without a token vanish in both.
      const std::string word = random_word(random, random() % 90, letters + 1);
      Ids by_scan, by_heap;
      encoder.encode_by_scan(word, &by_scan);
      encoder.encode_by_heap(word, &by_heap);
      ASSERT_EQ(by_scan, by_heap) << word;
    }
  }
}

TEST(BytePairEncoder, LowestRankFirstAndLeftmostOfEquals) {
  MergeTable merges(3);
  SymbolTable symbols;
  for (int i = 0; i < 3; ++i) symbols.byte_ids['a' + i] = i;
  merges.set(1, 2, {0, 10});  // b c
  merges.set(0, 1, {1, 11});  // a b
  merges.set(0, 0, {2, 12});  // a a
  BytePairEncoder encoder(merges, symbols);
  const auto encode = [&](std::string_view word) {
    Ids ids;
    encoder.encode(word, &ids);
    return ids;
  };
  EXPECT_EQ(encode("abc"), (Ids{0, 10}));
  EXPECT_EQ(encode("abab"), (Ids{11, 11}));
  EXPECT_EQ(encode("aaa"), (Ids{12, 0}));
  EXPECT_EQ(encode("axb"), (Ids{11}));  // x has no token
  EXPECT_EQ(encode("xyz"), (Ids{}));
  EXPECT_EQ(encode(""), (Ids{}));
}

TEST(MergeTable, FindsWhatWasSetAndNothingElse) {
  std::mt19937 random(4);
  MergeTable table(5000);
  for (int32_t i = 0; i < 5000; ++i) table.set(i, i * 7 % 5000, {static_cast<uint32_t>(i), i});
  for (int32_t i = 0; i < 5000; ++i) {
    EXPECT_EQ(table.find(i, i * 7 % 5000).merged, i);
    EXPECT_EQ(table.find(i, (i * 7 + 1) % 5000).rank, MergeTable::kNoRank);
  }
  EXPECT_EQ(MergeTable().find(0, 0).rank, MergeTable::kNoRank);
}

// A quadratic way would need an hour here.
TEST(BytePairEncoder, AWordOfAMegabyteIsDoneInTime) {
  Grammar grammar(5, 4, 200);
  grammar.merges.set(0, 0, {1000, 1000});        // a a
  grammar.merges.set(1000, 1000, {1001, 1001});  // aa aa
  BytePairEncoder encoder(grammar.merges, grammar.symbols);
  std::mt19937 random(6);
  for (const std::string& word : {random_word(random, 1'000'000, 4), std::string(1'000'000, 'a')}) {
    Ids ids;
    encoder.encode(word, &ids);
    EXPECT_GT(ids.size(), 0u);
    EXPECT_LT(ids.size(), word.size());
  }
}

}  // namespace
}  // namespace butter
