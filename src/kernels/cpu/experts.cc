#include "kernels/cpu/experts.h"

#include <algorithm>

#include "core/buffer.h"

namespace butter::cpu {
namespace {

// The pairs of one expert: places [begin, end).
struct Segment {
  int32_t expert = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t rows() const { return end - begin; }
};

constexpr WeightId ExpertWeights::*kMatrices[] = {&ExpertWeights::gate, &ExpertWeights::up,
                                                  &ExpertWeights::down};

// Bytes of the prepared inputs of `pairs` pairs in up to `segments` segments, each of whole tiles and cache
// lines.
int64_t prepared_bytes(InputKind kind, int64_t pairs, int64_t segments, int64_t columns) {
  const int64_t padded = pairs + segments * (input_grain(kind) - 1);
  return input_bytes(kind, padded, columns) + segments * Buffer::kAlignment;
}

class Layout {
 public:
  Layout(const ExpertsOp& op, const std::vector<LinearWeight>& weights, int64_t rows, std::byte* base)
      : base_(base) {
    const int64_t pairs = rows * op.chosen;
    const auto experts = static_cast<int64_t>(op.experts.size());
    segments = take<Segment>(std::min(experts, pairs) + 1);
    next_place = take<int32_t>(experts);
    places = take<int32_t>(pairs);
    pair_rows = take<int32_t>(pairs);
    const int64_t columns = weights[static_cast<size_t>(op.experts[0].up)].columns();
    const int64_t hidden = weights[static_cast<size_t>(op.experts[0].down)].rows();
    x = take<float>(pairs * columns);
    gate = take<float>(pairs * op.width);
    up = take<float>(pairs * op.width);
    y = take<float>(pairs * hidden);
    int64_t most = 0;
    for (const ExpertWeights& expert : op.experts) {
      for (const auto matrix : kMatrices) {
        if (expert.*matrix == kNone) continue;
        const LinearWeight& weight = weights[static_cast<size_t>(expert.*matrix)];
        for (const LinearPath path : {LinearPath::kDecode, LinearPath::kFinePrefill}) {
          most = std::max(most, prepared_bytes(input_kind(weight, path), pairs, std::min(experts, pairs),
                                               weight.columns()));
        }
      }
    }
    prepared = take<std::byte>(most);
  }

  Segment* segments = nullptr;    // [active experts + 1]; the last has expert -1
  int32_t* next_place = nullptr;  // [experts]
  int32_t* places = nullptr;      // [rows · chosen] of a pair
  int32_t* pair_rows = nullptr;   // [places] the row of each
  float* x = nullptr;             // [places][columns] rows brought together
  float* gate = nullptr;          // [places][width]
  float* up = nullptr;
  float* y = nullptr;  // [places][hidden]
  std::byte* prepared = nullptr;
  int64_t bytes = 0;

 private:
  template <typename T>
  T* take(int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + bytes;
    bytes += round_up(count * static_cast<int64_t>(sizeof(T)), Buffer::kAlignment);
    return reinterpret_cast<T*>(at);
  }

  std::byte* base_;
};

class ExpertsRun {
 public:
  ExpertsRun(const ExpertsStep& step, std::byte* scratch, std::byte* linear_scratch, const Worker& worker)
      : step_(step),
        op_(*step.op),
        at_(op_, *step.weights, step.rows, scratch),
        linear_scratch_(linear_scratch),
        worker_(worker) {}

  void run() {
    if (worker_.index() == 0) sort_pairs();
    worker_.barrier();
    gather_rows();
    if (op_.experts[0].gate != kNone) {
      multiply(&ExpertWeights::gate, &ExpertWeights::gate_bias, at_.x, at_.gate, nullptr);
      multiply(&ExpertWeights::up, &ExpertWeights::up_bias, at_.x, at_.up, &ExpertWeights::gate);
    } else {
      multiply(&ExpertWeights::up, &ExpertWeights::up_bias, at_.x, at_.up, nullptr);
    }
    worker_.barrier();
    activate();
    multiply(&ExpertWeights::down, &ExpertWeights::down_bias, at_.gate, at_.y, nullptr);
    worker_.barrier();
    combine();
  }

 private:
  const LinearWeight& weight(const Segment& segment, WeightId ExpertWeights::*matrix) const {
    return (*step_.weights)[static_cast<size_t>(op_.experts[static_cast<size_t>(segment.expert)].*matrix)];
  }

  // Places by expert, those of one expert in order of the rows: a counting sort.
  void sort_pairs() {
    const auto experts = static_cast<int32_t>(op_.experts.size());
    std::fill_n(at_.next_place, experts, 0);
    for_pairs([&](int64_t, int64_t, int expert) { ++at_.next_place[expert]; });
    Segment* segment = at_.segments;
    int32_t place = 0;
    for (int32_t expert = 0; expert < experts; ++expert) {
      const int32_t begin = place;
      place += at_.next_place[expert];
      at_.next_place[expert] = begin;
      if (place > begin) *segment++ = {expert, begin, place};
    }
    *segment = {-1, place, place};
    for_pairs([&](int64_t pair, int64_t row, int expert) {
      at_.places[pair] = at_.next_place[expert]++;
      at_.pair_rows[at_.places[pair]] = static_cast<int32_t>(row);
    });
  }

  // each(pair, row, expert)
  template <typename Each>
  void for_pairs(const Each& each) const {
    for (int64_t row = 0; row < step_.rows; ++row) {
      for (int route = 0; route < op_.chosen; ++route)
        each(row * op_.chosen + route, row, static_cast<int>(step_.routes.row(row)[route]));
    }
  }

  template <typename Each>
  void for_segments(const Each& each) const {
    for (const Segment* segment = at_.segments; segment->expert >= 0; ++segment) each(*segment);
  }
  int64_t pairs() const { return step_.rows * op_.chosen; }

  void gather_rows() {
    const int64_t columns = step_.in.stride;
    const IndexRange own = worker_.slice(pairs());
    for (int64_t place = own.begin; place < own.end; ++place)
      std::copy_n(step_.in.row(at_.pair_rows[place]), columns, at_.x + place * columns);
    worker_.barrier();
  }

  // Where a segment's prepared input stands, and what it is.
  LinearInput input_of(const Segment& segment, const LinearWeight& by, const float* x, int64_t& used) const {
    LinearInput input;
    input.kind = input_kind(by, step_.path);
    input.columns = input.stride = by.columns();
    input.x = x + segment.begin * input.stride;
    input.rows = segment.rows();
    input.prepared = at_.prepared + used;
    used += round_up(input_bytes(input.kind, input.rows, input.columns), Buffer::kAlignment);
    return input;
  }

  bool prepared_alike(WeightId ExpertWeights::*matrix, WeightId ExpertWeights::*before) const {
    bool alike = true;
    for_segments([&](const Segment& segment) {
      alike &=
          input_kind(weight(segment, matrix), step_.path) == input_kind(weight(segment, before), step_.path);
    });
    return alike;
  }

  // out = x · Wᵀ + b for every segment. `before`: a matrix whose prepared inputs of the same rows are there
  // still, or null.
  void multiply(WeightId ExpertWeights::*matrix, WeightId ExpertWeights::*bias, const float* x, float* out,
                WeightId ExpertWeights::*before) {
    if (before == nullptr || !prepared_alike(matrix, before)) {
      if (before != nullptr) worker_.barrier();  // everyone has read those of the other kind
      int64_t used = 0;
      int64_t index = 0;
      for_segments([&](const Segment& segment) {
        const LinearInput input = input_of(segment, weight(segment, matrix), x, used);
        if (index++ % worker_.count() == worker_.index()) prepare_input(step_.isa, input, {0, input.rows});
      });
      worker_.barrier();
    }
    int64_t used = 0;
    for_segments([&](const Segment& segment) {
      const LinearWeight& by = weight(segment, matrix);
      const LinearInput input = input_of(segment, by, x, used);
      LinearTarget target;
      target.y = out + segment.begin * by.rows();
      target.stride = by.rows();
      target.bias = step_.vectors->find(op_.experts[static_cast<size_t>(segment.expert)].*bias);
      linear(by, input, worker_.slice(by.rows(), kPanelRows), target, linear_scratch_);
    });
  }

  void activate() {
    const bool gated = op_.experts[0].gate != kNone;
    const IndexRange own = worker_.slice(pairs() * op_.width, 16);
    const float* gate = (gated ? at_.gate : at_.up) + own.begin;
    step_.elementwise->activate_mul(op_.function, gate, at_.up + own.begin, own.end - own.begin,
                                    at_.gate + own.begin);
    worker_.barrier();
  }

  void combine() {
    const int64_t hidden = step_.out.stride;
    const IndexRange own = worker_.slice(hidden, 16);
    const float multiplier = op_.accumulate ? op_.multiplier : 1;
    for (int64_t row = 0; row < step_.rows; ++row) {
      float* out = step_.out.row(row) + own.begin;
      if (!op_.accumulate) std::fill_n(out, own.end - own.begin, 0.0f);
      for (int route = 0; route < op_.chosen; ++route) {
        const float* y = at_.y + at_.places[row * op_.chosen + route] * hidden + own.begin;
        step_.elementwise->add(y, multiplier * step_.routes.row(row)[op_.chosen + route], own.end - own.begin,
                               out);
      }
    }
  }

  const ExpertsStep& step_;
  const ExpertsOp& op_;
  const Layout at_;
  std::byte* linear_scratch_;
  const Worker& worker_;
};

}  // namespace

int64_t experts_scratch_bytes(const ExpertsOp& op, const std::vector<LinearWeight>& weights, int64_t rows) {
  return Layout(op, weights, rows, nullptr).bytes;
}

void run_experts(const ExpertsStep& step, std::byte* scratch, std::byte* linear_scratch,
                 const Worker& worker) {
  ExpertsRun(step, scratch, linear_scratch, worker).run();
}

}  // namespace butter::cpu
