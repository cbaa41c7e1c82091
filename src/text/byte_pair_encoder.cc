#include "text/byte_pair_encoder.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>

namespace butter {

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(merges * 2, 2));
  slots_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
}

// Fibonacci hashing: the top bits of a product mix both ids.
size_t MergeTable::slot_of(int32_t left, int32_t right) const {
  const uint64_t key = (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  return static_cast<size_t>(((key ^ (key >> 29)) * 0x9E3779B97F4A7C15u) >> shift_);
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  size_t at = slot_of(left, right);
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {left, right, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  for (size_t at = slot_of(left, right);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.left < 0) return {kNoRank, -1};
    if (slot.left == left && slot.right == right) return slot.merge;
  }
}

void BytePairEncoder::encode(std::string_view word, std::vector<int32_t>* ids) {
  start(word);
  if (symbols_.size() < kLongWordSymbols) {
    merge_by_scan(ids);
  } else {
    merge_by_heap(ids);
  }
}

void BytePairEncoder::encode_by_scan(std::string_view word, std::vector<int32_t>* ids) {
  start(word);
  merge_by_scan(ids);
}

void BytePairEncoder::encode_by_heap(std::string_view word, std::vector<int32_t>* ids) {
  start(word);
  merge_by_heap(ids);
}

void BytePairEncoder::start(std::string_view word) {
  symbols_.clear();
  table_.append(word, &symbols_);
}

void BytePairEncoder::merge_by_scan(std::vector<int32_t>* ids) {
  pairs_.clear();
  for (size_t i = 1; i < symbols_.size(); ++i) pairs_.push_back(merges_.find(symbols_[i - 1], symbols_[i]));
  const auto by_rank = [](const Merge& a, const Merge& b) { return a.rank < b.rank; };
  while (!pairs_.empty()) {
    const auto lowest = std::min_element(pairs_.begin(), pairs_.end(), by_rank);
    if (lowest->rank == MergeTable::kNoRank) break;
    const auto at = static_cast<size_t>(lowest - pairs_.begin());
    symbols_[at] = lowest->merged;
    symbols_.erase(symbols_.begin() + static_cast<ptrdiff_t>(at) + 1);
    pairs_.erase(lowest);
    if (at > 0) pairs_[at - 1] = merges_.find(symbols_[at - 1], symbols_[at]);
    if (at < pairs_.size()) pairs_[at] = merges_.find(symbols_[at], symbols_[at + 1]);
  }
  ids->insert(ids->end(), symbols_.begin(), symbols_.end());
}

void BytePairEncoder::merge_by_heap(std::vector<int32_t>* ids) {
  start_nodes();
  heap_.clear();
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].with_next.rank != MergeTable::kNoRank) heap_.push_back({nodes_[i].with_next.rank, i});
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    const Candidate lowest = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    // A candidate is stale where its pair has changed since: a rank belongs to one pair alone.
    if (nodes_[lowest.at].with_next.rank == lowest.rank) merge_with_next(lowest.at);
  }
  // The first node only ever swallows its neighbours.
  for (int32_t at = nodes_.empty() ? -1 : 0; at >= 0; at = nodes_[at].next) ids->push_back(nodes_[at].id);
}

void BytePairEncoder::start_nodes() {
  nodes_.clear();
  for (const int32_t id : symbols_) {
    const auto at = static_cast<int32_t>(nodes_.size());
    if (at > 0) {
      nodes_[at - 1].next = at;
      nodes_[at - 1].with_next = merges_.find(nodes_[at - 1].id, id);
    }
    nodes_.push_back({id, at - 1, -1, {MergeTable::kNoRank, -1}});
  }
}

void BytePairEncoder::merge_with_next(uint32_t at) {
  Node& node = nodes_[at];
  Node& gone = nodes_[node.next];
  node.id = node.with_next.merged;
  node.next = gone.next;
  gone.with_next.rank = MergeTable::kNoRank;
  if (node.next >= 0) nodes_[node.next].previous = static_cast<int32_t>(at);
  refresh(static_cast<int32_t>(at));
  if (node.previous >= 0) refresh(node.previous);
}

// Looks the pair that begins at a node up again, and queues it.
void BytePairEncoder::refresh(int32_t at) {
  Node& node = nodes_[at];
  node.with_next =
      node.next < 0 ? Merge{MergeTable::kNoRank, -1} : merges_.find(node.id, nodes_[node.next].id);
  if (node.with_next.rank == MergeTable::kNoRank) return;
  heap_.push_back({node.with_next.rank, static_cast<uint32_t>(at)});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

}  // namespace butter
