// The bytes of a sequence's cache, planned and held. GiB is 2^30 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace butter {

struct LayerMemory {
  int layer = 0;
  int kv_heads = 0;  // 0: the layer has no KV cache
  int key_dim = 0;
  int value_dim = 0;
  int64_t window_size = 0;  // 0: none
  int64_t window_keep = 0;
  int64_t rows = 0;
  int64_t bytes = 0;        // of KV rows
  int64_t state_bytes = 0;  // of recurrent state, with its snapshots
};

struct CachePlan {
  std::string kv_cache;  // the scheme
  int64_t max_context = 0;
  int64_t sealed_bytes = 0;
  int64_t open_bytes = 0;
  int64_t pinned_bytes = 0;
  int64_t centre_bytes = 0;
  int64_t recurrent_bytes = 0;  // state: that of the position, and room for that of the next
  int64_t snapshot_bytes = 0;   // of state, to go back to
  int64_t total_bytes = 0;      // their sum: held at max_context
  int64_t prefill_bytes = 0;    // more, while a prefill step is under way
  int64_t raw_bytes = 0;        // total_bytes of the raw cache with the same window and context
  int64_t bytes_per_token = 0;
  double ratio_sealed = 1;      // raw bytes / bytes of a sealed page
  double ratio_at_context = 1;  // raw_bytes / total_bytes
  std::vector<LayerMemory> layers;
};

}  // namespace butter
