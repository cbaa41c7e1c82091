#include "kernels/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/dequantise.h"

namespace butter::reference {

void embed(const TensorView& table, int32_t id, float scale, float* out) {
  dequantise_row(table, id, out);
  for (int64_t i = 0; i < table.columns(); ++i) out[i] *= scale;
}

void rms_norm(const RmsNormOp& op, const float* in, int64_t width, const float* weight, float* out) {
  const int64_t run_width = width / op.runs;
  for (int64_t begin = 0; begin < width; begin += run_width) {
    float squares = 0;
    for (int64_t i = 0; i < run_width; ++i) squares += in[begin + i] * in[begin + i];
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(run_width) + op.eps);
    for (int64_t i = 0; i < run_width; ++i) {
      float w = 1;
      if (weight != nullptr) w = weight[op.shared_weight ? i : begin + i] + (op.centred ? 1.0f : 0.0f);
      out[begin + i] = in[begin + i] * factor * w * op.multiplier;
    }
  }
}

void rope_angles(std::span<const double> inv_freq, float amplitude, int64_t position, float* cos,
                 float* sin) {
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double angle = std::fmod(static_cast<double>(position) * inv_freq[i], 2 * std::numbers::pi);
    cos[i] = amplitude * std::cos(static_cast<float>(angle));
    sin[i] = amplitude * std::sin(static_cast<float>(angle));
  }
}

void rope(const RopeOp& op, int64_t pairs, const float* cos, const float* sin, float* row) {
  for (int head = 0; head < op.heads; ++head) {
    float* x = row + static_cast<int64_t>(head) * op.head_dim;
    for (int64_t i = 0; i < pairs; ++i) {
      const float a = x[i];
      const float b = x[i + pairs];
      x[i] = a * cos[i] - b * sin[i];
      x[i + pairs] = b * cos[i] + a * sin[i];
    }
  }
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kRelu:
      return std::max(x, 0.0f);
    case Activation::kClampedSilu:  // has no act: activate_mul()
      break;
    case Activation::kSigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case Activation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * std::numbers::sqrt2_v<float> * 0.5f));
    case Activation::kGeluTanh: {
      constexpr float kRootTwoOverPi = 0.7978845608f;
      return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
    }
  }
  return 0;
}

void activate_mul(const GateFunction& function, const float* gate, const float* up, int64_t count, float* out,
                  int64_t run) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i / run];
    if (function.activation == Activation::kClampedSilu) {
      const float limit = function.limit, bounded = std::min(g, limit);
      out[i] = bounded * activate(Activation::kSigmoid, function.alpha * bounded) *
               (std::clamp(up[i], -limit, limit) + 1);
    } else {
      out[i] = activate(function.activation, function.multiplier * g) * up[i];
    }
  }
}

void add(float multiplier, const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] += multiplier * in[i];
}

void scale(float multiplier, float cap, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float y = multiplier * out[i];
    out[i] = cap == 0 ? y : cap * std::tanh(y / cap);
  }
}

void scale_runs(const ScaleRunsOp& op, float* row) {
  for (int i = 0; i < op.count; ++i) {
    const ScaleRunsOp::Run& run = op.runs[static_cast<size_t>(i)];
    for (int k = 0; k < run.width; ++k) row[k] *= run.multiplier;
    row += run.width;
  }
}

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kTaken = std::numeric_limits<float>::quiet_NaN();

// The place of the largest value that is not taken, of equals the first. There is one.
int64_t best_left(const float* values, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isnan(values[i]) && (best < 0 || values[i] > values[best])) best = i;
  }
  return best;
}

// Leaves −inf in the groups that are not among the best. A group counts as the sum of its two best. False
// where one such sum is NaN.
bool keep_best_groups(const Routing& routing, float* values, float* sums) {
  const int64_t size = routing.experts / routing.groups;
  bool known = true;
  for (int64_t group = 0; group < routing.groups; ++group) {
    const float* own = values + group * size;
    const int64_t first = best_left(own, size);
    float second = size > 1 ? kLowest : 0;
    for (int64_t i = 0; i < size; ++i) {
      if (i != first) second = std::max(second, own[i]);
    }
    const float sum = own[first] + second;
    known &= !std::isnan(sum);
    sums[group] = std::isnan(sum) ? kLowest : sum;
  }
  for (int i = 0; i < routing.chosen_groups; ++i) sums[best_left(sums, routing.groups)] = kTaken;
  for (int64_t group = 0; group < routing.groups; ++group) {
    if (!std::isnan(sums[group])) std::fill_n(values + group * size, size, kLowest);
  }
  return known;
}

}  // namespace

void route(const Routing& routing, const float* scores, const float* choice_bias, float* scratch,
           float* out) {
  const bool sigmoid = routing.score == RouterScore::kSigmoid;
  float highest = kLowest;
  bool known = true;  // that no choice is by a NaN
  for (int i = 0; i < routing.experts; ++i) {
    const float choice = (sigmoid ? activate(Activation::kSigmoid, scores[i]) : scores[i]) +
                         (choice_bias ? choice_bias[i] : 0);
    known &= !std::isnan(choice);
    scratch[i] = std::isnan(choice) ? kLowest : choice;
    highest = std::max(highest, scores[i]);
  }
  if (routing.groups > 1) known &= keep_best_groups(routing, scratch, scratch + routing.experts);
  for (int i = 0; i < routing.chosen; ++i) {
    const int64_t best = best_left(scratch, routing.experts);
    scratch[best] = kTaken;
    out[i] = static_cast<float>(best);
  }
  float* weights = out + routing.chosen;
  float all = 0;
  for (int i = 0; i < routing.experts; ++i) all += std::exp(scores[i] - highest);
  float sum = 0;
  for (int i = 0; i < routing.chosen; ++i) {
    const float score = scores[static_cast<int>(out[i])];
    weights[i] = sigmoid ? activate(Activation::kSigmoid, score) : std::exp(score - highest);
    if (routing.score == RouterScore::kSoftmax) weights[i] /= all;
    sum += weights[i];
  }
  const bool normalise = routing.normalise || routing.score == RouterScore::kSoftmaxOfBest;
  for (int i = 0; i < routing.chosen; ++i) {
    if (normalise) weights[i] /= sum + 1e-20f;
    weights[i] *= known ? routing.scale : std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace butter::reference
