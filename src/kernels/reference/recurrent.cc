#include "kernels/reference/recurrent.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/ops.h"

namespace butter::reference {

void conv(const ConvOp& op, int64_t channels, const float* weight, const float* bias, const float* in,
          float* past, float* out) {
  for (int64_t c = 0; c < channels; ++c) {
    float sum = bias != nullptr ? bias[c] : 0;
    for (int64_t tap = 0; tap + 1 < op.taps; ++tap)
      sum += weight[tap * channels + c] * past[tap * channels + c];
    sum += weight[(op.taps - 1) * channels + c] * in[c];
    out[c] = activate(Activation::kSilu, sum);
  }
  if (op.taps < 2) return;
  std::copy(past + channels, past + (op.taps - 1) * channels, past);
  std::copy_n(in, channels, past + (op.taps - 2) * channels);
}

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

void mamba2(const Mamba2Op& op, const Mamba2Weights& weights, const float* conv, const float* dt,
            float* state, float* out) {
  const int64_t dim = op.head_dim, size = op.state_size;
  const float* all_b = conv + op.heads * dim;
  const float* all_c = all_b + op.groups * size;
  for (int64_t head = 0; head < op.heads; ++head) {
    const int64_t group = head / (op.heads / op.groups);
    const float* x = conv + head * dim;
    const float* b = all_b + group * size;
    const float* c = all_c + group * size;
    float* s = state + head * size * dim;
    float* y = out + head * dim;
    const float delta = std::clamp(softplus(dt[head] + weights.dt_bias[head]), op.dt_min, op.dt_max);
    const float keep = std::exp(delta * weights.decay[head]);
    for (int64_t i = 0; i < dim; ++i) y[i] = weights.skip[head] * x[i];
    for (int64_t n = 0; n < size; ++n) {
      for (int64_t i = 0; i < dim; ++i) {
        float& value = s[n * dim + i];
        value = keep * value + b[n] * (delta * x[i]);
        y[i] += c[n] * value;
      }
    }
  }
}

void mamba1(const Mamba1Op& op, int64_t width, const float* decay, const float* skip,
            const Mamba1Inputs& inputs, float* state, float* out) {
  for (int64_t i = 0; i < width; ++i) {
    const float delta = softplus(inputs.dt[i]);
    out[i] = skip[i] * inputs.x[i];
    for (int64_t n = 0; n < op.state_size; ++n) {
      float& value = state[n * width + i];
      value = std::exp(delta * decay[n * width + i]) * value + inputs.b[n] * (delta * inputs.x[i]);
      out[i] += inputs.c[n] * value;
    }
  }
}

void unit_length(const float* x, int64_t count, float factor, float* out) {
  float squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += x[i] * x[i];
  const float scale = factor / std::sqrt(squares + 1e-6f);
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * scale;
}

void delta_rule(const DeltaRuleOp& op, const float* decay, const float* dt_bias, const DeltaInputs& inputs,
                float* state, float* scratch, float* out) {
  const int64_t key_dim = op.key_dim, value_dim = op.value_dim;
  const float* all_k = inputs.conv + op.key_heads * key_dim;
  const float* all_v = all_k + op.key_heads * key_dim;
  float* q = scratch;
  float* k = q + key_dim;
  float* error = k + key_dim;
  for (int64_t head = 0; head < op.value_heads; ++head) {
    const int64_t key_head = op.tiled ? head % op.key_heads : head / (op.value_heads / op.key_heads);
    unit_length(inputs.conv + key_head * key_dim, key_dim, 1 / std::sqrt(static_cast<float>(key_dim)), q);
    unit_length(all_k + key_head * key_dim, key_dim, 1, k);
    const float* v = all_v + head * value_dim;
    float* s = state + head * key_dim * value_dim;
    float* y = out + head * value_dim;
    const float beta = activate(Activation::kSigmoid, inputs.beta[head]);
    const float keep = std::exp(decay[head] * softplus(inputs.alpha[head] + dt_bias[head]));
    std::copy_n(v, value_dim, error);
    for (int64_t n = 0; n < key_dim; ++n) {
      for (int64_t i = 0; i < value_dim; ++i) {
        s[n * value_dim + i] *= keep;
        error[i] -= s[n * value_dim + i] * k[n];
      }
    }
    std::fill_n(y, value_dim, 0.0f);
    for (int64_t n = 0; n < key_dim; ++n) {
      for (int64_t i = 0; i < value_dim; ++i) {
        s[n * value_dim + i] += k[n] * (beta * error[i]);
        y[i] += s[n * value_dim + i] * q[n];
      }
    }
  }
}

}  // namespace butter::reference
