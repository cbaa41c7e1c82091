#include "families/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "checkpoint/printable.h"
#include "core/dequantise.h"

namespace butter {
namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMinDivisor = 1e-6;
constexpr const char *kDivisors = "rope_freqs.weight", *kShortDivisors = "rope_factors_short.weight",
                     *kLongDivisors = "rope_factors_long.weight";

std::vector<double> plain_inv_freq(double theta, int rotary) {
  std::vector<double> inv_freq(static_cast<size_t>(rotary / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i)
    inv_freq[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary);
  return inv_freq;
}

Status check_rotary(int rotary, int head_dim, const std::string& where) {
  if (rotary < 2 || rotary > head_dim || rotary % 2 != 0) {
    return fail(StatusCode::kCorrupt,
                "{}: the rotary width is {}; an even number from 2 to the head width {} is expected", where,
                rotary, head_dim);
  }
  return {};
}

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
Status apply_llama3(const Attributes& scaling, RopeTable& table) {
  BUTTER_ASSIGN(const double factor, scaling.require_float("factor", 1e-6, 1e6));
  BUTTER_ASSIGN(const double low, scaling.require_float_or("low_freq_factor", 1, 1e-6, 1e6));
  BUTTER_ASSIGN(const double high, scaling.require_float_or("high_freq_factor", 4, 1e-6, 1e6));
  BUTTER_ASSIGN(const double original,
                scaling.require_float_or("original_max_position_embeddings", 8192, 1, 1e12));
  if (high <= low) {
    return fail(StatusCode::kCorrupt, "{} is {}; more than low_freq_factor {} is expected",
                scaling.full_name("high_freq_factor"), high, low);
  }
  for (double& inv : table.inv_freq) {
    const double wavelength = 2 * std::numbers::pi / inv;
    if (wavelength > original / low) {
      inv /= factor;
    } else if (wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      inv = (1 - smooth) * inv / factor + smooth * inv;
    }
  }
  return {};
}

struct YarnParameters {
  double theta = 0;
  double factor = 1;
  double original = 0;  // positions the model was trained for
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
};

// YaRN (Peng et al. 2023): a ramp over pairs from kept to divided frequencies.
Status apply_yarn(const YarnParameters& yarn, RopeTable& table) {
  if (yarn.theta <= 1)
    return fail(StatusCode::kCorrupt, "the base of RoPE is {}; more than 1 is expected with YaRN",
                yarn.theta);
  const double rotary = 2.0 * static_cast<double>(table.inv_freq.size());
  const auto correction = [&](double rotations) {
    return rotary * std::log(yarn.original / (2 * std::numbers::pi * rotations)) / (2 * std::log(yarn.theta));
  };
  double low = correction(yarn.beta_fast), high = correction(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    table.inv_freq[i] = table.inv_freq[i] / yarn.factor * ramp + table.inv_freq[i] * (1 - ramp);
  }
  return {};
}

double yarn_mscale(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * std::log(factor) + 1;
}

Status read_hf_yarn(const Attributes& scaling, double theta, int64_t max_positions, RopeTable& table) {
  YarnParameters yarn;
  yarn.theta = theta;
  BUTTER_ASSIGN(yarn.factor, scaling.require_float("factor", 1e-6, 1e6));
  BUTTER_ASSIGN(yarn.original, scaling.require_float_or("original_max_position_embeddings",
                                                        static_cast<double>(max_positions), 1, 1e12));
  BUTTER_ASSIGN(yarn.beta_fast, scaling.require_float_or("beta_fast", 32, 1e-6, 1e6));
  BUTTER_ASSIGN(yarn.beta_slow, scaling.require_float_or("beta_slow", 1, 1e-6, 1e6));
  BUTTER_ASSIGN(yarn.truncate, scaling.get_bool_or("truncate", true));
  BUTTER_TRY(apply_yarn(yarn, table));
  BUTTER_ASSIGN(const double mscale, scaling.require_float_or("mscale", 0, 0, 1e6));
  BUTTER_ASSIGN(const double mscale_all, scaling.require_float_or("mscale_all_dim", 0, 0, 1e6));
  const bool both = mscale > 0 && mscale_all > 0;  // 0 and null are as if not stated
  const double amplitude = both ? yarn_mscale(yarn.factor, mscale) / yarn_mscale(yarn.factor, mscale_all)
                                : yarn_mscale(yarn.factor, 1);
  BUTTER_ASSIGN(const double stated, scaling.require_float_or("attention_factor", amplitude, 1e-6, 1e6));
  table.amplitude = static_cast<float>(stated);
  return {};
}

// LongRoPE: a divisor for each pair, of two kinds of sequences. What the scores of long contexts are
// sharpened by holds for both.
void apply_longrope(const std::vector<double>& short_factors, const std::vector<double>& long_factors,
                    double original, RopeTable& table) {
  table.reach = static_cast<int64_t>(original);
  table.long_inv_freq = table.inv_freq;
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    table.inv_freq[i] /= short_factors[i];
    table.long_inv_freq[i] /= long_factors[i];
  }
}

Result<std::vector<double>> read_factors(const Attributes& scaling, const char* key, size_t pairs) {
  BUTTER_ASSIGN(std::vector<double> factors, scaling.get_floats(key));
  if (factors.size() != pairs) {
    return fail(StatusCode::kCorrupt, "{} has {} numbers; {} are expected, one for each pair of channels",
                scaling.full_name(key), factors.size(), pairs);
  }
  for (const double factor : factors) {
    if (factor >= 1e-6 && factor <= 1e6) continue;
    return fail(StatusCode::kCorrupt, "{} has {}; 1e-06 to 1e+06 is expected", scaling.full_name(key),
                factor);
  }
  return factors;
}

Status read_hf_longrope(const Attributes& scaling, double original, int64_t max_positions, RopeTable& table) {
  const size_t pairs = table.inv_freq.size();
  BUTTER_ASSIGN(const auto short_factors, read_factors(scaling, "short_factor", pairs));
  BUTTER_ASSIGN(const auto long_factors, read_factors(scaling, "long_factor", pairs));
  BUTTER_ASSIGN(original, scaling.require_float_or("original_max_position_embeddings", original, 0, 1e12));
  double factor = static_cast<double>(max_positions) / original;
  if (original < 2) {  // not stated
    original = std::max(2.0, static_cast<double>(max_positions));
    BUTTER_ASSIGN(factor, scaling.require_float_or("factor", 1, 1e-6, 1e6));
  }
  const double amplitude = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  BUTTER_ASSIGN(const double stated, scaling.require_float_or("attention_factor", amplitude, 1e-6, 1e6));
  table.amplitude = static_cast<float>(stated);
  apply_longrope(short_factors, long_factors, original, table);
  return {};
}

// The divisors of GGUF files: a tensor with one for each pair; none: the file has no such tensor.
Result<std::vector<double>> read_divisors(const FamilySource& source, const char* name, size_t pairs) {
  if (!source.checkpoint || source.checkpoint->find_tensor(name) == nullptr) return std::vector<double>();
  const auto count = static_cast<int64_t>(pairs);
  BUTTER_ASSIGN(const TensorView view, source.checkpoint->require_tensor(name, Shape{count}));
  std::vector<float> values(pairs);
  dequantise_row(view.dtype, view.data, count, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= kMinDivisor && std::isfinite(values[i])) continue;
    return fail(StatusCode::kCorrupt, "{}[{}] is {}; a finite number from {} on is expected", name, i,
                values[i], kMinDivisor);
  }
  return std::vector<double>(values.begin(), values.end());
}

Status read_gguf_longrope(const FamilySource& source, const std::string& prefix, double context,
                          const std::vector<double>& short_divisors, RopeTable& table) {
  BUTTER_ASSIGN(const auto long_divisors, read_divisors(source, kLongDivisors, table.inv_freq.size()));
  if (long_divisors.empty()) {
    return fail(StatusCode::kCorrupt, "there is {} and no {}; both are expected", kShortDivisors,
                kLongDivisors);
  }
  BUTTER_ASSIGN(
      const double original,
      source.config.require_float_or(prefix + "rope.scaling.original_context_length", context, 1, 1e12));
  BUTTER_ASSIGN(const double amplitude,
                source.config.require_float_or(prefix + "rope.scaling.attn_factor", 1, 1e-6, 1e6));
  table.amplitude = static_cast<float>(amplitude);
  apply_longrope(short_divisors, long_divisors, original, table);
  return {};
}

}  // namespace

Result<Attributes> find_hf_rope_object(const Attributes& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (config.kind(key) != AttributeKind::kAbsent) return config.get_object(key);
  }
  return Attributes();
}

Result<RopeTable> read_hf_rope(const Attributes& config, int head_dim, const RopeDefaults& defaults,
                               int64_t max_positions) {
  BUTTER_ASSIGN(const Attributes scaling, find_hf_rope_object(config));
  BUTTER_ASSIGN(const double outer_theta,
                config.require_float_or("rope_theta", defaults.theta, 1e-3, kMaxTheta));
  BUTTER_ASSIGN(const double outer_partial,
                config.require_float_or("partial_rotary_factor", defaults.partial, 0, 1));
  BUTTER_ASSIGN(const double original,
                config.require_float_or("original_max_position_embeddings", 0, 0, 1e12));
  RopeDefaults own = defaults;
  own.theta = outer_theta;
  own.partial = outer_partial;
  own.original = original;
  return read_hf_rope_object(scaling, head_dim, own, max_positions);
}

Result<RopeTable> read_hf_rope_object(const Attributes& scaling, int head_dim, const RopeDefaults& defaults,
                                      int64_t max_positions) {
  BUTTER_ASSIGN(const double theta, scaling.require_float_or("rope_theta", defaults.theta, 1e-3, kMaxTheta));
  BUTTER_ASSIGN(const double partial,
                scaling.require_float_or("partial_rotary_factor", defaults.partial, 0, 1));
  const int rotary = static_cast<int>(head_dim * partial);
  BUTTER_TRY(check_rotary(rotary, head_dim, "rope_parameters"));

  RopeTable table;
  table.inv_freq = plain_inv_freq(theta, rotary);
  BUTTER_ASSIGN(const std::string older_type, scaling.get_string_or("type", "default"));
  BUTTER_ASSIGN(const std::string type, scaling.get_string_or("rope_type", older_type));
  if (type == "default" || type == "mrope") return table;
  if (type == "linear") {
    BUTTER_ASSIGN(const double factor, scaling.require_float("factor", 1e-6, 1e6));
    for (double& inv : table.inv_freq) inv /= factor;
    return table;
  }
  if (type == "llama3") {
    BUTTER_TRY(apply_llama3(scaling, table));
    return table;
  }
  if (type == "yarn") {
    BUTTER_TRY(read_hf_yarn(scaling, theta, max_positions, table));
    return table;
  }
  if (type == "longrope" || type == "su") {
    BUTTER_TRY(read_hf_longrope(scaling, defaults.original, max_positions, table));
    return table;
  }
  return fail(StatusCode::kUnsupported,
              "{} is \"{}\"; default, linear, llama3, yarn and longrope are supported",
              scaling.full_name("rope_type"), printable(type));
}

Result<RopeTable> read_gguf_rope(const FamilySource& source, const std::string& prefix, int head_dim,
                                 const RopeDefaults& defaults) {
  const Attributes& config = source.config;
  BUTTER_ASSIGN(const double theta,
                config.require_float_or(prefix + "rope.freq_base", defaults.theta, 1e-3, kMaxTheta));
  BUTTER_ASSIGN(const int64_t rotary,
                config.require_int_or(prefix + "rope.dimension_count",
                                      static_cast<int64_t>(head_dim * defaults.partial), 0, 1 << 20));
  BUTTER_TRY(check_rotary(static_cast<int>(rotary), head_dim, prefix + "rope.dimension_count"));
  RopeTable table;
  table.inv_freq = plain_inv_freq(theta, static_cast<int>(rotary));

  BUTTER_ASSIGN(const std::string type, config.get_string_or(prefix + "rope.scaling.type", "none"));
  BUTTER_ASSIGN(const double factor, config.require_float_or(prefix + "rope.scaling.factor", 1, 1e-6, 1e6));
  BUTTER_ASSIGN(const double context, config.require_float_or(prefix + "context_length", 2048, 1, 1e12));
  const size_t pairs = table.inv_freq.size();
  BUTTER_ASSIGN(const auto short_divisors, read_divisors(source, kShortDivisors, pairs));
  if (!short_divisors.empty()) {
    BUTTER_TRY(read_gguf_longrope(source, prefix, context, short_divisors, table));
    return table;
  }
  if (type == "linear") {
    for (double& inv : table.inv_freq) inv /= factor;
  } else if (type == "yarn") {
    YarnParameters yarn;
    yarn.theta = theta;
    yarn.factor = factor;
    yarn.truncate = defaults.truncate;
    BUTTER_ASSIGN(yarn.original,
                  config.require_float_or(prefix + "rope.scaling.original_context_length", context, 1, 1e12));
    BUTTER_TRY(apply_yarn(yarn, table));
    BUTTER_ASSIGN(const double amplitude, config.require_float_or(prefix + "rope.scaling.attn_factor",
                                                                  yarn_mscale(factor, 1), 1e-6, 1e6));
    table.amplitude = static_cast<float>(amplitude);
  } else if (type != "none") {
    return fail(StatusCode::kUnsupported,
                "{}rope.scaling.type is \"{}\"; none, linear and yarn are supported", prefix,
                printable(type));
  }

  BUTTER_ASSIGN(const auto divisors, read_divisors(source, kDivisors, pairs));
  for (size_t i = 0; i < divisors.size(); ++i) table.inv_freq[i] /= divisors[i];
  return table;
}

bool is_rope_tensor(std::string_view name) {
  return name == kDivisors || name == kShortDivisors || name == kLongDivisors;
}

Result<RopeTable> read_gguf_sliding_rope(const FamilySource& source, int head_dim, double theta) {
  const std::string prefix = source.model_type + ".rope.";
  const std::string width_key = prefix + "dimension_count_swa";
  BUTTER_ASSIGN(theta, source.config.require_float_or(prefix + "freq_base_swa", theta, 1e-3, kMaxTheta));
  BUTTER_ASSIGN(const int64_t rotary, source.config.require_int_or(width_key, head_dim, 0, 1 << 20));
  BUTTER_TRY(check_rotary(static_cast<int>(rotary), head_dim, width_key));
  RopeTable table;
  table.inv_freq = plain_inv_freq(theta, static_cast<int>(rotary));
  return table;
}

}  // namespace butter
