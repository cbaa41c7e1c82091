// MergeTable and BytePairEncoder: byte-pair merges over token ids.
//
// A word begins as the tokens of its bytes or characters (symbol_table.h); while a neighbouring pair has a
// merge, the pair of the lowest rank, leftmost of equals, becomes one token (Sennrich et al., 2016). Both
// ways of doing it below give that same result: short words scan for the lowest rank, long ones keep a heap,
// n log n in its symbols.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "text/symbol_table.h"

namespace butter {

// From a pair of ids to the rank of its merge and the id that it makes. Open addressing; immutable once
// filled, and then safe from any thread.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
  struct Merge {
    uint32_t rank;  // kNoRank: the pair does not merge
    int32_t merged;
  };

  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t merges);  // room for so many

  // A pair that is there already takes the new rank, as in PyPI `tokenizers`.
  void set(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = -1;
    Merge merge = {kNoRank, -1};
  };
  size_t slot_of(int32_t left, int32_t right) const;

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  int shift_;
};

// One thread's encoder of words; holds the scratch. Both tables must outlive it.
class BytePairEncoder {
 public:
  // A word of at least so many symbols goes by the heap.
  static constexpr size_t kLongWordSymbols = 64;

  BytePairEncoder(const MergeTable& merges, const SymbolTable& table) : merges_(merges), table_(table) {}

  // Appends the ids of a word of less than 2^31 bytes.
  void encode(std::string_view word, std::vector<int32_t>* ids);

  // The two ways, for encode() and for the test that they agree.
  void encode_by_scan(std::string_view word, std::vector<int32_t>* ids);
  void encode_by_heap(std::string_view word, std::vector<int32_t>* ids);

 private:
  using Merge = MergeTable::Merge;
  struct Candidate {
    uint32_t rank;
    uint32_t at;  // the pair's left node
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  struct Node {
    int32_t id;
    int32_t previous;  // -1 at the ends
    int32_t next;
    Merge with_next;  // kNoRank where it was merged away
  };

  void start(std::string_view word);
  void merge_by_scan(std::vector<int32_t>* ids);
  void merge_by_heap(std::vector<int32_t>* ids);
  void start_nodes();
  void merge_with_next(uint32_t at);
  void refresh(int32_t at);

  const MergeTable& merges_;
  const SymbolTable& table_;
  std::vector<int32_t> symbols_;
  std::vector<Merge> pairs_;  // pairs_[i]: of symbols i and i + 1
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace butter
