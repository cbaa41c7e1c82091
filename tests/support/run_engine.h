// Short ways to drive an Engine from a test; whatever goes wrong is the test's failure.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "butter/engine.h"
#include "core/check.h"

namespace butter {

using Logits = std::vector<std::vector<float>>;  // a row for each position

// BUTTER_ISA for as long as it lives; engines choose their kernels when they are loaded.
class ScopedIsa {
 public:
  explicit ScopedIsa(const std::string& isa) { ::setenv("BUTTER_ISA", isa.c_str(), 1); }
  ~ScopedIsa() { ::unsetenv("BUTTER_ISA"); }
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;
};

// Options that suit the tiny models: steps of up to 256 rows, all of which may give logits.
inline EngineOptions tiny_options(const std::string& model, const std::string& device, int threads = 1) {
  EngineOptions options;
  options.model = model;
  options.device = device;
  options.threads = threads;
  options.prefill_rows = 256;
  options.logit_rows = 256;
  options.cache_budget_bytes = int64_t{256} << 20;
  return options;
}

inline std::unique_ptr<Engine> load_engine(const EngineOptions& options) {
  auto engine = Engine::load(options);
  EXPECT_TRUE(engine) << engine.error().message();
  BUTTER_CHECK(engine.has_value());
  return std::move(*engine);
}

inline Sequence make_sequence(Engine& engine, const SequenceOptions& options = {}) {
  auto sequence = engine.make_layer_caches(options);
  EXPECT_TRUE(sequence) << sequence.error().message();
  BUTTER_CHECK(sequence.has_value());
  return std::move(*sequence);
}

// Feeds all ids in calls of `chunk` tokens; the logits of every one.
inline Logits feed_all(Engine& engine, Sequence& sequence, std::span<const int32_t> ids,
                       size_t chunk = 1000000) {
  Logits logits;
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const auto part = ids.subspan(at, std::min(chunk, ids.size() - at));
    const Status status = engine.forward_all(sequence, part, [&](int64_t, std::span<const float> row) {
      logits.emplace_back(row.begin(), row.end());
    });
    EXPECT_TRUE(status) << status.error().message();
  }
  return logits;
}

// Feeds ids in one call; the logits after the last.
inline std::vector<float> feed_last(Engine& engine, Sequence& sequence, std::span<const int32_t> ids) {
  const auto logits = engine.forward(sequence, ids);
  EXPECT_TRUE(logits) << logits.error().message();
  return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
}

inline int32_t argmax(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// How far the largest value is above the second.
inline float top_gap(std::vector<float> row) {
  std::partial_sort(row.begin(), row.begin() + 2, row.end(), std::greater<>());
  return row[0] - row[1];
}

inline float max_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
  return most;
}

inline float max_difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, max_difference(a[i], b[i]));
  return most;
}

inline std::vector<int32_t> random_ids(size_t count, uint32_t seed, int vocabulary = 256) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  return ids;
}

}  // namespace butter
