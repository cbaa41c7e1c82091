#include "text/joined_pairs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "text/utf8.h"

namespace butter {

JoinedPairModel::JoinedPairModel(std::span<const Piece> pieces, const Options& options) : options_(options) {
  std::vector<float> scores;
  std::vector<PieceTrie::Piece> one_symbol;
  size_t bytes = 0;
  for (const Piece& piece : pieces) {
    scores.push_back(piece.score);
    bytes += piece.text.size();
    longest_bytes_ = std::max(longest_bytes_, piece.text.size());
    if (piece.is_one_symbol) one_symbol.push_back({piece.text, piece.id});
  }
  std::ranges::sort(scores, std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  texts_.reserve(bytes);
  pieces_.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const auto order = std::ranges::lower_bound(scores, piece.score, std::greater<>()) - scores.begin();
    const size_t begin = texts_.size();
    texts_ += piece.text;
    pieces_.emplace(std::string_view(texts_).substr(begin),
                    Entry{piece.id, static_cast<uint32_t>(order), piece.is_unused});
  }
  one_symbol_ = PieceTrie(std::move(one_symbol));
}

const JoinedPairModel::Entry* JoinedPairModel::find(std::string_view text) const {
  if (text.size() > longest_bytes_) return nullptr;
  const auto found = pieces_.find(text);
  return found == pieces_.end() ? nullptr : &found->second;
}

class JoinedPairModel::Encoder final : public WordEncoder {
 public:
  explicit Encoder(const JoinedPairModel& model) : model_(model) {}

  void encode(std::string_view word, std::vector<int32_t>* ids) override {
    const Entry* const whole = model_.options_.takes_whole_words ? model_.find(word) : nullptr;
    if (whole != nullptr) return ids->push_back(whole->id);
    word_ = word;
    start();
    join();
    unknown_ = {};
    for (int32_t at = nodes_.empty() ? -1 : 0; at >= 0; at = nodes_[at].next)
      add(text_of(nodes_[at]), 0, ids);
    end_unknown(ids);
  }

 private:
  // A stretch of the word; one that was joined to the left of it is empty.
  struct Node {
    uint32_t begin;
    uint32_t bytes;
    int32_t previous;  // -1 at the ends
    int32_t next;
    bool is_fixed;
  };
  struct Candidate {
    uint32_t order;
    uint32_t at;     // the pair's left node
    uint32_t bytes;  // of both
    bool operator>(const Candidate& other) const {
      return order != other.order ? order > other.order : at > other.at;
    }
  };
  // No deeper does a piece that is unused fall apart, as in SentencePiece.
  static constexpr int kMaxDepth = 100;

  std::string_view text_of(const Node& node) const { return word_.substr(node.begin, node.bytes); }

  void start() {
    nodes_.clear();
    candidates_.clear();
    parts_.clear();
    for (size_t at = 0; at < word_.size();) {
      const std::string_view rest = word_.substr(at);
      const size_t fixed = model_.one_symbol_.longest_prefix_bytes(rest);
      const size_t bytes = fixed > 0 ? fixed : model_.options_.of_bytes ? 1 : first_utf8_unit(rest).bytes;
      const auto index = static_cast<int32_t>(nodes_.size());
      nodes_.push_back(
          {static_cast<uint32_t>(at), static_cast<uint32_t>(bytes), index - 1, index + 1, fixed > 0});
      at += bytes;
    }
    if (!nodes_.empty()) nodes_.back().next = -1;
  }

  void join() {
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) look_at_pair(static_cast<int32_t>(i));
    while (!candidates_.empty()) {
      std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
      const Candidate best = candidates_.back();
      candidates_.pop_back();
      Node& left = nodes_[best.at];
      // One of the two has been joined to something else since.
      if (left.bytes == 0 || left.next < 0 || left.bytes + nodes_[left.next].bytes != best.bytes) continue;
      Node& right = nodes_[left.next];
      left.bytes = best.bytes;
      left.next = right.next;
      right.bytes = 0;
      if (left.next >= 0) nodes_[left.next].previous = static_cast<int32_t>(best.at);
      if (left.previous >= 0) look_at_pair(left.previous);
      if (left.next >= 0) look_at_pair(static_cast<int32_t>(best.at));
    }
  }

  void look_at_pair(int32_t at) {
    const Node& left = nodes_[at];
    const Node& right = nodes_[left.next];
    if (left.is_fixed || right.is_fixed) return;
    const std::string_view text = word_.substr(left.begin, left.bytes + right.bytes);
    const Entry* const piece = model_.find(text);
    if (piece == nullptr) return;
    candidates_.push_back({piece->order, static_cast<uint32_t>(at), left.bytes + right.bytes});
    std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    if (piece->is_unused) parts_[text] = left.bytes;
  }

  void add(std::string_view text, int depth, std::vector<int32_t>* ids) {
    const Entry* const piece = model_.find(text);
    if (piece == nullptr) return add_unknown(text);
    if (!piece->is_unused || depth > kMaxDepth) {
      end_unknown(ids);
      return ids->push_back(piece->id);
    }
    const auto parts = parts_.find(text);
    if (parts == parts_.end()) return add_unknown(text);
    add(text.substr(0, parts->second), depth + 1, ids);
    add(text.substr(parts->second), depth + 1, ids);
  }

  // Unknown text waits for what follows it: a run of it is one.
  void add_unknown(std::string_view text) {
    unknown_ = unknown_.empty() ? text : std::string_view(unknown_.data(), unknown_.size() + text.size());
  }
  void end_unknown(std::vector<int32_t>* ids) {
    if (!unknown_.empty()) model_.options_.unknown.append(std::exchange(unknown_, {}), ids);
  }

  const JoinedPairModel& model_;
  std::string_view word_;
  std::vector<Node> nodes_;
  std::vector<Candidate> candidates_;                     // a heap
  std::unordered_map<std::string_view, uint32_t> parts_;  // of unused pieces: the bytes of the left part
  std::string_view unknown_;
};

std::unique_ptr<WordEncoder> JoinedPairModel::make_encoder() const {
  return std::make_unique<Encoder>(*this);
}

}  // namespace butter
