#include "engine/tiny_llama.h"

#include <cmath>

namespace butter {
namespace {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;

Row times(const FloatTensor& weight, const Row& x) {
  Row out(static_cast<size_t>(weight.shape[0]));
  for (size_t o = 0; o < out.size(); ++o) {
    const float* row = weight.row(static_cast<int64_t>(o));
    for (size_t i = 0; i < x.size(); ++i) out[o] += row[i] * x[i];
  }
  return out;
}

Row norm(const FloatTensor& weight, const Row& x, double eps) {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight.values[i];
  return out;
}

// Channel i of every head turns with channel i + dim/2.
void rotate(Row& x, size_t dim, int64_t position, double theta) {
  for (size_t head = 0; head < x.size(); head += dim) {
    for (size_t i = 0; i < dim / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      const double a = x[head + i], b = x[head + i + dim / 2];
      x[head + i] = a * std::cos(angle) - b * std::sin(angle);
      x[head + i + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

// One head of one query over the keys that it sees.
void attend(const Row& query, const Matrix& keys, const Matrix& values, size_t p, size_t head, size_t kv_head,
            size_t dim, const Mask& mask, Row& out) {
  Row weights(p + 1, 0);
  double most = -INFINITY, total = 0;
  for (size_t k = 0; k <= p; ++k) {
    for (size_t i = 0; i < dim; ++i) weights[k] += query[head * dim + i] * keys[k][kv_head * dim + i];
    weights[k] /= std::sqrt(static_cast<double>(dim));
    if (mask(static_cast<int64_t>(p), static_cast<int64_t>(k))) most = std::max(most, weights[k]);
  }
  for (size_t k = 0; k <= p; ++k) {
    weights[k] = mask(static_cast<int64_t>(p), static_cast<int64_t>(k)) ? std::exp(weights[k] - most) : 0;
    total += weights[k];
  }
  for (size_t k = 0; k <= p; ++k) {
    for (size_t i = 0; i < dim; ++i) out[head * dim + i] += weights[k] / total * values[k][kv_head * dim + i];
  }
}

void add(Row& x, const Row& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

Logits tiny_llama(const Fixture& fixture, std::span<const int32_t> ids, const Mask& mask) {
  const double eps = *fixture.config.get_float("rms_norm_eps");
  const double theta = *fixture.config.get_object("rope_parameters")->get_float("rope_theta");
  const auto heads = static_cast<size_t>(fixture.number("num_attention_heads"));
  const auto kv_heads = static_cast<size_t>(fixture.number("num_key_value_heads"));
  const auto dim = static_cast<size_t>(fixture.head_dim());
  const auto weight = [&](const std::string& name) -> const FloatTensor& {
    return fixture.weights.at(name + ".weight");
  };
  Matrix x;
  for (int32_t id : ids) {
    const float* row = weight("model.embed_tokens").row(id);
    x.emplace_back(row, row + fixture.number("hidden_size"));
  }
  for (int layer = 0; layer < fixture.number("num_hidden_layers"); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    Matrix queries, keys, values;
    for (size_t p = 0; p < x.size(); ++p) {
      const Row h = norm(weight(prefix + "input_layernorm"), x[p], eps);
      queries.push_back(times(weight(prefix + "self_attn.q_proj"), h));
      keys.push_back(times(weight(prefix + "self_attn.k_proj"), h));
      values.push_back(times(weight(prefix + "self_attn.v_proj"), h));
      rotate(queries.back(), dim, static_cast<int64_t>(p), theta);
      rotate(keys.back(), dim, static_cast<int64_t>(p), theta);
    }
    for (size_t p = 0; p < x.size(); ++p) {
      Row mixed(heads * dim, 0);
      for (size_t head = 0; head < heads; ++head) {
        attend(queries[p], keys, values, p, head, head / (heads / kv_heads), dim, mask, mixed);
      }
      add(x[p], times(weight(prefix + "self_attn.o_proj"), mixed));
      const Row h = norm(weight(prefix + "post_attention_layernorm"), x[p], eps);
      const Row gate = times(weight(prefix + "mlp.gate_proj"), h);
      Row up = times(weight(prefix + "mlp.up_proj"), h);
      for (size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] / (1 + std::exp(-gate[i]));
      add(x[p], times(weight(prefix + "mlp.down_proj"), up));
    }
  }
  Logits logits;
  for (const Row& row : x) {
    const Row out = times(weight("lm_head"), norm(weight("model.norm"), row, eps));
    logits.emplace_back(out.begin(), out.end());
  }
  return logits;
}

}  // namespace butter
