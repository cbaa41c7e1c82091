#include "text/joined_pairs.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "text/characters.h"

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
    if (!options.of_bytes && !piece.is_one_symbol) add_neighbours(piece.text);
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

uint64_t JoinedPairModel::neighbours(std::string_view left, std::string_view right) {
  const auto number = [](std::string_view character) {
    uint64_t value = 0;
    for (const char c : character) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  };
  return number(left) << 32 | number(right);
}

void JoinedPairModel::add_neighbours(std::string_view text) {
  std::string_view left = first_character(text);
  for (text.remove_prefix(left.size()); !text.empty(); text.remove_prefix(left.size())) {
    const std::string_view right = first_character(text);
    neighbours_.insert(neighbours(left, right));
    left = right;
  }
}

class JoinedPairModel::Encoder final : public WordEncoder {
 public:
  explicit Encoder(const JoinedPairModel& model) : model_(model) {}

  void encode(std::string_view word, std::vector<int32_t>* ids) override {
    const Entry* const whole = model_.options_.takes_whole_words ? model_.find(word) : nullptr;
    if (whole != nullptr) return ids->push_back(whole->id);
    word_ = word;
    unknown_ = {};
    if (model_.options_.of_bytes) {
      add_stretch(word, ids);
    } else {
      known_.assign(std::clamp(std::bit_ceil(word.size() / 16 + 1), kLeastSlots, kMostSlots), Known());
      add_characters(ids);
    }
    end_unknown(ids);
  }

 private:
  // A symbol of a stretch; one that was joined to the left of it is empty.
  struct Node {
    uint32_t begin;
    uint32_t bytes;
    int32_t previous;  // -1 at the ends
    int32_t next;
  };
  struct Candidate {
    uint32_t order;
    uint32_t at;     // the pair's left node
    uint32_t bytes;  // of both
    bool operator>(const Candidate& other) const {
      return order != other.order ? order > other.order : at > other.at;
    }
  };
  // Where in the ids those of a stretch stand that was met before.
  struct Known {
    std::string_view stretch;
    uint32_t first_id = 0;
    uint32_t ids = 0;
  };
  static constexpr size_t kLeastSlots = 16;
  static constexpr size_t kMostSlots = 1 << 14;
  // No deeper does a piece that is unused fall apart, as in SentencePiece.
  static constexpr int kMaxDepth = 100;

  std::string_view text_of(const Node& node) const { return stretch_.substr(node.begin, node.bytes); }

  // Cuts the word where nothing is ever joined.
  void add_characters(std::vector<int32_t>* ids) {
    size_t begin = 0, at = 0;
    std::string_view last;
    const auto end_stretch = [&] {
      if (begin < at) add_known_stretch(word_.substr(begin, at - begin), ids);
      begin = at;
    };
    while (at < word_.size()) {
      const std::string_view rest = word_.substr(at);
      const size_t symbol = model_.one_symbol_.longest_prefix_bytes(rest);
      if (symbol > 0) {
        end_stretch();
        add(rest.substr(0, symbol), 0, ids);
        begin = at += symbol;
        continue;
      }
      const std::string_view character = first_character(rest);
      if (begin < at && !model_.neighbours_.contains(neighbours(last, character))) end_stretch();
      last = character;
      at += character.size();
    }
    end_stretch();
  }

  void add_known_stretch(std::string_view stretch, std::vector<int32_t>* ids) {
    Known& known = known_[std::hash<std::string_view>()(stretch) & (known_.size() - 1)];
    if (known.stretch == stretch) {
      end_unknown(ids);
      for (uint32_t i = 0; i < known.ids; ++i) {
        const int32_t id = (*ids)[known.first_id + i];
        ids->push_back(id);
      }
      return;
    }
    // Where unknown text waits for more, whose ids come last is not known.
    const bool waited = !unknown_.empty();
    const size_t first_id = ids->size();
    add_stretch(stretch, ids);
    if (waited || !unknown_.empty()) return;
    known = {stretch, static_cast<uint32_t>(first_id), static_cast<uint32_t>(ids->size() - first_id)};
  }

  void add_stretch(std::string_view stretch, std::vector<int32_t>* ids) {
    stretch_ = stretch;
    start();
    join();
    for (int32_t at = nodes_.empty() ? -1 : 0; at >= 0; at = nodes_[at].next)
      add(text_of(nodes_[at]), 0, ids);
  }

  void start() {
    nodes_.clear();
    candidates_.clear();
    parts_.clear();
    for (size_t at = 0; at < stretch_.size();) {
      const size_t bytes = model_.options_.of_bytes ? 1 : first_character(stretch_.substr(at)).size();
      const auto index = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(bytes), index - 1, index + 1});
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
    const std::string_view text = stretch_.substr(left.begin, left.bytes + right.bytes);
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
  std::string_view stretch_;  // of the word, or all of it
  std::vector<Known> known_;  // by their hashes
  std::vector<Node> nodes_;
  std::vector<Candidate> candidates_;                     // a heap
  std::unordered_map<std::string_view, uint32_t> parts_;  // of unused pieces: the bytes of the left part
  std::string_view unknown_;
};

std::unique_ptr<WordEncoder> JoinedPairModel::make_encoder() const {
  return std::make_unique<Encoder>(*this);
}

}  // namespace butter
