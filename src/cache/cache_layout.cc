#include "cache/cache_layout.h"

#include <algorithm>

#include "cache/page_pool.h"
#include "cache/state_ring.h"
#include "kernels/centre.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

// Far beyond any model; sums of bytes stay within 63 bits.
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int kMaxSnapshots = 64;

// Pages are read in runs of at least so many bytes, or the memory's speed is not reached: 48 KB here and
// there get 22 GB/s of the 28 that runs of 192 KB get (two threads, DDR5, huge pages), 8 KB get 20.
constexpr int64_t kRunBytes = 256 << 10;

Status check_options(const CacheOptions& options) {
  if (options.max_context < 1) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; at least 1 is expected",
                options.max_context);
  }
  if (options.max_context > kMaxPositions) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; at most {} is expected",
                options.max_context, kMaxPositions);
  }
  if (options.state_snapshots < 0 || options.state_snapshots > kMaxSnapshots) {
    return fail(StatusCode::kInvalidArgument, "--state-snapshots is {}; 0 to {} are expected",
                options.state_snapshots, kMaxSnapshots);
  }
  const Window& window = options.window;
  if (window.max_size < 0 || window.keep < 0) {
    return fail(StatusCode::kInvalidArgument,
                "--kv-window-size is {} and --kv-window-keep {}; neither may be negative", window.max_size,
                window.keep);
  }
  if (window.max_size > kMaxPositions) {
    return fail(StatusCode::kInvalidArgument, "--kv-window-size is {}; at most {} is expected",
                window.max_size, kMaxPositions);
  }
  if (window.max_size > 0 && window.max_size <= window.keep) {
    return fail(StatusCode::kInvalidArgument,
                "--kv-window-size is {}; more than --kv-window-keep, which is {}, is expected",
                window.max_size, window.keep);
  }
  return {};
}

// Head widths of models.
constexpr int kUsualWidths[] = {16, 32, 48, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, 512};

Status check_dim(const RowFormat& format, int dim, int layer) {
  if (format.takes_dim(dim)) return {};
  std::string taken;
  for (const int width : kUsualWidths) {
    if (format.takes_dim(width)) taken += fmt::format("{}, ", width);
  }
  return fail(StatusCode::kUnsupported,
              "the cache format {} takes head widths {}...; layer {} of this model has {}", format.name,
              taken, layer, dim);
}

}  // namespace

int64_t CacheLayout::max_positions() const {
  for (const WindowClass& window_class : classes) {
    if (window_class.window.none() && !window_class.layers.empty()) return options.max_context;
  }
  return kMaxPositions;
}

int CacheLayout::state_blocks() const {
  return state.bytes == 0 ? 0 : StateRing::blocks(options.state_snapshots);
}

int64_t kept_pages(const Window& window, bool pins) {
  if (window.none() || (pins && window.keep <= kPinnedRows)) return 0;
  return pages_for(window.keep);
}

int64_t first_live_page(const Window& window, int64_t position) {
  return page_of(window.recent_begin(page_of(position) * kPageRows));
}

PageRuns page_runs(const Window& window, bool pins, int64_t position) {
  PageRuns runs;
  runs.end = page_of(position);
  runs.kept_end = std::min(kept_pages(window, pins), runs.end);
  runs.recent_begin = std::clamp(first_live_page(window, position), runs.kept_end, runs.end);
  return runs;
}

void lengthen_runs(BlockLayout& layout) {
  if (layout.layers.empty()) return;
  const int64_t layer_bytes = layout.layers[0].bytes;
  const auto same = [&](const LayerLayout& layer) { return layer.bytes == layer_bytes; };
  if (layer_bytes >= kRunBytes || !std::all_of(layout.layers.begin(), layout.layers.end(), same)) return;
  lay_side_by_side(layout, PagePool::slab_blocks(layout.bytes, (kRunBytes + layer_bytes - 1) / layer_bytes));
}

LayerMemory layer_memory(const WindowClass& window_class, size_t index, int64_t rows, int64_t bytes) {
  const KvLayerShape& shape = window_class.layers[index];
  return {shape.layer,
          shape.kv_heads,
          shape.key_dim,
          shape.value_dim,
          window_class.window.max_size,
          window_class.window.keep,
          rows,
          bytes,
          0};
}

void add_state_layers(const CacheLayout& layout, int blocks, std::vector<LayerMemory>& layers) {
  for (size_t i = 0; i < layout.state_layers.size(); ++i) {
    const int layer = layout.state_layers[i].layer;
    auto row = std::find_if(layers.begin(), layers.end(),
                            [&](const LayerMemory& memory) { return memory.layer == layer; });
    if (row == layers.end()) {
      layers.emplace_back().layer = layer;
      row = layers.end() - 1;
    }
    row->state_bytes += blocks * layout.state.layers[i].bytes;
  }
}

Result<std::shared_ptr<const CacheLayout>> make_cache_layout(const CacheModel& model,
                                                             const CacheOptions& options) {
  BUTTER_TRY(check_options(options));
  for (const KvLayerShape& shape : model.kv_layers) {
    BUTTER_TRY(check_dim(*options.scheme.key, shape.key_dim, shape.layer));
    BUTTER_TRY(check_dim(*options.scheme.value, shape.value_dim, shape.layer));
    if (options.scheme.centres() && shape.key_dim > kMaxCentreDim) {
      return fail(StatusCode::kUnsupported,
                  "layer {} has keys of {} values; a cache format that centres them takes at most {}",
                  shape.layer, shape.key_dim, kMaxCentreDim);
    }
  }
  auto layout = std::make_shared<CacheLayout>();
  layout->options = options;
  layout->layers = model.layers;
  layout->state_layers = model.state_layers;
  layout->state = state_layout(model.state_layers);
  for (size_t index = 0; index < model.window_classes.size(); ++index) {
    WindowClass window_class;
    window_class.window = combine_windows(model.window_classes[index], options.window);
    for (const KvLayerShape& shape : model.kv_layers) {
      if (shape.window_class == static_cast<int>(index)) window_class.layers.push_back(shape);
    }
    window_class.sealed = sealed_layout(window_class.layers, options.scheme);
    lengthen_runs(window_class.sealed);
    window_class.raw = raw_layout(window_class.layers, options.scheme.raw, kPageRows);
    if (options.scheme.centres()) window_class.centre = centre_layout(window_class.layers);
    if (options.scheme.pins())
      window_class.pinned = raw_layout(window_class.layers, options.scheme.raw, kPinnedRows);
    layout->classes.push_back(std::move(window_class));
  }
  return std::shared_ptr<const CacheLayout>(std::move(layout));
}

}  // namespace butter
