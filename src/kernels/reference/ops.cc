#include "kernels/reference/ops.h"

#include <cmath>
#include <numbers>

#include "core/dequantise.h"

namespace butter::reference {

void embed(const TensorView& table, int32_t id, float scale, float* out) {
  dequantise_row(table.dtype, table.row(id), table.columns(), out);
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
      out[begin + i] = in[begin + i] * factor * w;
    }
  }
}

void rope_angles(const RopeTable& table, int64_t position, float* cos, float* sin) {
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    const double angle = std::fmod(static_cast<double>(position) * table.inv_freq[i], 2 * std::numbers::pi);
    cos[i] = table.amplitude * std::cos(static_cast<float>(angle));
    sin[i] = table.amplitude * std::sin(static_cast<float>(angle));
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

void activate_mul(Activation activation, const float* gate, const float* up, int64_t count, float* out,
                  int64_t run) {
  for (int64_t i = 0; i < count; ++i) out[i] = activate(activation, gate[i / run]) * up[i];
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

}  // namespace butter::reference
