#include "cache/cache_layout.h"

#include "kernels/row_format.h"

namespace butter {
namespace {

// Far beyond any model; sums of bytes stay within 63 bits.
constexpr int64_t kMaxPositions = int64_t{1} << 31;

Status check_options(const CacheOptions& options) {
  if (options.max_context < 1) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; at least 1 is expected",
                options.max_context);
  }
  if (options.max_context > kMaxPositions) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; at most {} is expected",
                options.max_context, kMaxPositions);
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

Status check_dim(const RowFormat& format, int dim, int layer) {
  if (format.takes_dim(dim)) return {};
  return fail(StatusCode::kUnsupported,
              "layer {} has heads of {} values, which the cache format {} cannot store", layer, dim,
              format.name);
}

}  // namespace

int64_t kept_pages(const Window& window, bool seals) {
  if (window.none() || (seals && window.keep <= kPinnedRows)) return 0;
  return pages_for(window.keep);
}

int64_t first_live_page(const Window& window, int64_t position) {
  return page_of(window.recent_begin(page_of(position) * kPageRows));
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
          bytes};
}

int64_t layer_block_bytes(const BlockLayout& block, size_t layer) {
  const int64_t begin = block.layers[layer].heads.front().key;
  const int64_t end =
      layer + 1 < block.layers.size() ? block.layers[layer + 1].heads.front().key : block.bytes;
  return end - begin;
}

Result<std::shared_ptr<const CacheLayout>> make_cache_layout(const CacheModel& model,
                                                             const CacheOptions& options) {
  BUTTER_TRY(check_options(options));
  for (const KvLayerShape& shape : model.kv_layers) {
    BUTTER_TRY(check_dim(*options.scheme.key, shape.key_dim, shape.layer));
    BUTTER_TRY(check_dim(*options.scheme.value, shape.value_dim, shape.layer));
  }
  auto layout = std::make_shared<CacheLayout>();
  layout->options = options;
  layout->layers = model.layers;
  for (size_t index = 0; index < model.window_classes.size(); ++index) {
    WindowClass window_class;
    window_class.window = combine_windows(model.window_classes[index], options.window);
    for (const KvLayerShape& shape : model.kv_layers) {
      if (shape.window_class == static_cast<int>(index)) window_class.layers.push_back(shape);
    }
    window_class.sealed = sealed_layout(window_class.layers, options.scheme);
    window_class.raw = raw_layout(window_class.layers, options.scheme.raw, kPageRows);
    if (options.scheme.seals())
      window_class.pinned = raw_layout(window_class.layers, options.scheme.raw, kPinnedRows);
    layout->classes.push_back(std::move(window_class));
  }
  return std::shared_ptr<const CacheLayout>(std::move(layout));
}

}  // namespace butter
