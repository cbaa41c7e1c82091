#include "text/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/utf8.h"

namespace butter {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr double kOneSymbol = -std::numeric_limits<double>::infinity();
constexpr int32_t kUnknown = -2;

}  // namespace

UnigramModel::UnigramModel(std::span<const Piece> pieces, const Options& options) : options_(options) {
  std::vector<PieceTrie::Piece> texts;
  texts.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    texts.push_back({piece.text, static_cast<int32_t>(ids_.size())});
    ids_.push_back(piece.id);
    scores_.push_back(piece.is_one_symbol ? kOneSymbol : piece.score);
  }
  trie_ = PieceTrie(std::move(texts));
}

// Score is the type in which sums are rounded.
template <typename Score>
class UnigramModel::Encoder final : public WordEncoder {
 public:
  explicit Encoder(const UnigramModel& model) : model_(model) {}

  void encode(std::string_view word, std::vector<int32_t>* ids) override {
    find_best(word);
    path_.clear();
    for (size_t end = word.size(); end > 0; end = best_[end].begin) path_.push_back(end);
    size_t unknown_begin = 0, at = 0;
    for (auto end = path_.rbegin(); end != path_.rend(); at = *end++) {
      const int32_t piece = best_[*end].piece;
      if (is_unknown(piece)) continue;  // a run of unknown characters is one
      if (unknown_begin < at) add_unknown(word.substr(unknown_begin, at - unknown_begin), ids);
      ids->push_back(model_.ids_[static_cast<size_t>(piece)]);
      unknown_begin = *end;
    }
    if (unknown_begin < at) add_unknown(word.substr(unknown_begin), ids);
  }

 private:
  // The best way to cut the word up to a place: its last piece, and where that begins.
  struct Best {
    Score sum = 0;
    int32_t piece = -1;  // -1: no way is known yet
    uint32_t begin = 0;
  };
  // SentencePiece takes sums of this size as far down as they go, to keep floats exact.
  static constexpr Score kLargeSum = 100'000;

  void find_best(std::string_view word) {
    best_.assign(word.size() + 1, Best());
    farthest_ = 0;
    const auto unknown_score =
        static_cast<Score>(model_.options_.least_score) - static_cast<Score>(kUnknownPenalty);
    for (size_t at = 0; at < word.size();) {
      if (model_.options_.as_sentencepiece) keep_small(at);
      const std::string_view rest = word.substr(at);
      const size_t character_bytes = first_utf8_unit(rest).bytes;
      bool has_character = false;
      model_.trie_.for_each_prefix(rest, [&](size_t bytes, int32_t piece) {
        offer(at, bytes, piece, score_of(piece, bytes));
        has_character |= bytes == character_bytes;
      });
      if (!has_character) offer(at, character_bytes, kUnknown, unknown_score);
      at += character_bytes;
    }
  }

  Score score_of(int32_t piece, size_t bytes) const {
    const double score = model_.scores_[static_cast<size_t>(piece)];
    return static_cast<Score>(score == kOneSymbol ? 0.1 * (static_cast<double>(bytes) - 1) : score);
  }

  void offer(size_t begin, size_t bytes, int32_t piece, Score score) {
    Best& best = best_[begin + bytes];
    const Score sum = score + best_[begin].sum;
    farthest_ = std::max(farthest_, begin + bytes);
    if (best.piece == -1 || sum > best.sum) best = {sum, piece, static_cast<uint32_t>(begin)};
  }

  void keep_small(size_t at) {
    const Score sum = best_[at].sum;
    if (sum >= -kLargeSum && sum <= kLargeSum) return;
    for (size_t i = at; i <= farthest_; ++i) {
      if (i == at || best_[i].piece != -1) best_[i].sum -= sum;
    }
  }

  // The spelling of the unknown token, where it is a piece, is no better than unknown characters.
  bool is_unknown(int32_t piece) const {
    return piece == kUnknown || model_.ids_[static_cast<size_t>(piece)] == model_.options_.unknown.unknown_id;
  }

  void add_unknown(std::string_view run, std::vector<int32_t>* ids) const {
    // `tokenizers` looks a run up once more: the unknown token's spelling, or two characters that are worse
    // as one piece, are that piece.
    const int32_t piece = model_.options_.as_sentencepiece ? -1 : model_.trie_.find(run);
    if (piece >= 0) return ids->push_back(model_.ids_[static_cast<size_t>(piece)]);
    model_.options_.unknown.append(run, ids);
  }

  const UnigramModel& model_;
  std::vector<Best> best_;  // by the bytes up to a place
  size_t farthest_ = 0;
  std::vector<size_t> path_;
};

std::unique_ptr<WordEncoder> UnigramModel::make_encoder() const {
  if (options_.as_sentencepiece) return std::make_unique<Encoder<float>>(*this);
  return std::make_unique<Encoder<double>>(*this);
}

}  // namespace butter
