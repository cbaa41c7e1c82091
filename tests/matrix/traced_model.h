// TracedModel: a fixture on a device, driven step by step, with what went into attention and what came out.
//
// A run of a lossy scheme keeps the attention that it computed, and goes on with that of the raw run of the
// same steps. So the queries, keys and values of both runs are the same bits in every layer, and each layer's
// attention can be checked on its own, from known rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/cache_set.h"
#include "matrix/matrix.h"
#include "model/model_spec.h"
#include "support/fixture.h"
#include "support/run_engine.h"

namespace butter {

// What attention of one layer read and wrote, by position.
struct TracedLayer {
  Logits queries, attended;                      // [position][q_heads · dim], after RoPE
  std::vector<std::vector<float>> keys, values;  // [kv_head] -> [position][dim], as the cache stores them
};

struct TracedRun {
  std::vector<size_t> steps;
  std::vector<TracedLayer> layers;
};

class TracedModel {
 public:
  TracedModel(const std::string& fixture, const MatrixDevice& device);

  const ModelSpec& spec() const { return spec_; }
  const std::vector<KvLayerShape>& kv_layers() const { return program_.kv_layers; }
  // How far keys turn, by pairs of channels; none where they do not.
  std::vector<double> frequencies(const KvLayerShape& layer) const;
  const AttentionSpec& attention(const KvLayerShape& layer) const;
  // Scores without a value, one for each query head; empty where there are none.
  std::vector<float> sinks(const KvLayerShape& layer) const;
  Window model_window(const KvLayerShape& layer) const {
    return program_.window_classes[static_cast<size_t>(layer.window_class)];
  }
  DType raw() const { return limits_.raw; }

  // The raw cache without any window, fed in steps of up to `chunk` tokens.
  TracedRun run_raw(std::span<const int32_t> ids, size_t chunk);
  // What a scheme's attention answers, by layer, where everything else is as in the raw run.
  std::vector<Logits> run_scheme(const KvScheme& scheme, const Window& window, std::span<const int32_t> ids,
                                 const TracedRun& raw);

 private:
  CacheSet make_caches(const KvScheme& scheme, const Window& window, bool model_windows);
  void step(CacheSet& caches, std::span<const int32_t> ids, const TraceFn& trace);
  void read_rows(CacheSet& caches, TracedRun& run);
  size_t kv_index(int layer) const;

  std::optional<Checkpoint> checkpoint_;
  std::vector<Buffer> weight_buffers_;
  std::unique_ptr<Device> device_;
  ModelSpec spec_;
  Program program_;
  StepLimits limits_;
  std::unique_ptr<PreparedProgram> prepared_;
  std::shared_ptr<PagePool> pool_;
};

}  // namespace butter
