// CacheLayout: the shape of a sequence's cache: which layers share pages, where their rows stand, what each
// layer's window is. Immutable, shared by the sequences that have the same model, scheme and window.
//
// CacheModel is all that the cache knows of a model.
#pragma once

#include <memory>
#include <vector>

#include "butter/plan.h"
#include "core/status.h"
#include "kernels/kv_layout.h"
#include "kernels/program.h"
#include "kernels/window.h"

namespace butter {

struct CacheModel {
  int layers = 0;                        // of the model, with a cache or without
  std::vector<KvLayerShape> kv_layers;   // those with a KV cache, in order
  std::vector<Window> window_classes;    // the model's distinct windows
  std::vector<StateShape> state_layers;  // those with recurrent state, in order
};

// The options of one sequence's cache.
struct CacheOptions {
  KvScheme scheme;
  Window window;            // the user's; max_size 0 for none
  int64_t max_context = 0;  // positions that the layers without a window may hold
  int prefill_rows = 0;     // most rows that one step of this sequence has
  int state_snapshots = 3;  // of recurrent state (state_ring.h)
};

// Layers that share a window share a page table; one block holds their rows for 64 positions.
struct WindowClass {
  Window window;  // the smaller of the model's and the user's
  std::vector<KvLayerShape> layers;
  BlockLayout sealed;
  BlockLayout raw;     // 64 raw rows: the open page of schemes that seal
  BlockLayout pinned;  // 4 raw rows, in schemes that pin
  BlockLayout centre;  // in schemes that centre
};

struct CacheLayout {
  CacheOptions options;
  std::vector<WindowClass> classes;
  int layers = 0;
  std::vector<StateShape> state_layers;
  StateLayout state;  // of one block

  // The most positions that a sequence reaches: no end where every layer with a KV cache has a window.
  int64_t max_positions() const;
  // Blocks of recurrent state that a sequence holds.
  int state_blocks() const;
  bool seals() const { return options.scheme.seals(); }
  bool pins() const { return options.scheme.pins(); }
  // The block of a class's open page: in schemes that do not seal, a page like the others.
  const BlockLayout& open_block(const WindowClass& window_class) const {
    return seals() ? window_class.raw : window_class.sealed;
  }
};

// Pages that a window never lets go of: those with kept positions. In schemes that pin, the pinned rows stand
// in for them as long as keep is no more than they are.
int64_t kept_pages(const Window& window, bool pins);

// First page whose rows a query at `position`, or at any position since its page began, can still see (kept
// pages aside). Counting from the page's start makes going back within the open page always possible, and
// costs no page at the peak.
int64_t first_live_page(const Window& window, int64_t position);

// The sealed pages that a sequence holds at a position: [0, kept_end) and [recent_begin, end). However it
// came there: steps, truncation and forks keep to it.
struct PageRuns {
  int64_t kept_end = 0;
  int64_t recent_begin = 0;
  int64_t end = 0;
  int64_t count() const { return kept_end + end - recent_begin; }
  bool operator==(const PageRuns&) const = default;
};
PageRuns page_runs(const Window& window, bool pins, int64_t position);

// Lets blocks stand side by side where a layer of one block is too short a run for the memory's speed.
void lengthen_runs(BlockLayout& layout);

// What reports say of one layer of a class that holds so many rows and bytes.
LayerMemory layer_memory(const WindowClass& window_class, size_t index, int64_t rows, int64_t bytes);

// Adds `blocks` blocks of state to the rows of the layers that have some.
void add_state_layers(const CacheLayout& layout, int blocks, std::vector<LayerMemory>& layers);

// Refuses options that cannot be served: max_context < 1, a negative window, window <= keep, a head width
// that the format does not take.
Result<std::shared_ptr<const CacheLayout>> make_cache_layout(const CacheModel& model,
                                                             const CacheOptions& options);

}  // namespace butter
