// Cache files: whatever the bytes, a sequence whose rows can all be read, or an Error and nothing leased.
//
// Each input is tried as it is, and with its length and checksums mended, so that what is behind them is
// reached.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "cache/cache_file.h"
#include "cache/cache_file_testing.h"
#include "cache/cache_scheme.h"
#include "cache/page_pool.h"
#include "core/check.h"

namespace butter {
namespace {

volatile uint64_t touched = 0;

// Keeps the compiler from leaving out the reads.
void touch(const void* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += static_cast<const unsigned char*>(data)[i];
  touched = touched + sum;
}

// What the seeds were saved with (corpus/generate.py).
constexpr const char* kModel = "tiny-2x16-0123";
constexpr struct {
  const char* scheme;
  Window window;
} kKinds[] = {{"raw", {}}, {"aura3v2", {}}, {"k=affine4g16,v=raw", {70, 4}}, {"affine8:plain", {100, 70}}};

CacheModel tiny_model() {
  CacheModel model;
  model.layers = 2;
  model.kv_layers = {{0, 1, 16, 16, 0, 0}, {1, 1, 16, 8, 0, -1}};
  model.window_classes = {Window{}};
  return model;
}

void touch_blocks(const CacheSet& caches) {
  const WindowClass& window_class = caches.layout().classes[0];
  const ClassBlocks blocks = caches.blocks(0);
  for (const std::byte* page : blocks.pages) {
    for (const LayerLayout& layer : window_class.sealed.layers)
      touch(page + layer.begin, static_cast<size_t>(layer.bytes));
  }
  for (size_t i = 0; blocks.centre != nullptr && i < window_class.layers.size(); ++i) {
    const KvLayerShape& shape = window_class.layers[i];
    const uint16_t* exact =
        exact_pairs_of(blocks.centre + window_class.centre.layers[i].heads[0].key, shape.key_dim);
    for (int pair = 0; shape.rope_table >= 0 && pair < shape.key_dim / 8; ++pair)
      BUTTER_CHECK(exact[pair] < shape.key_dim / 2);
  }
}

void load(const std::string& path) {
  static const std::vector<RopeTable> ropes = {{{1.0, 0.5, 0.25, 0.125, 0.06, 0.03, 0.01, 0.001}, 1, {}, 0}};
  CacheFileContext context;
  context.model = kModel;
  context.rope_tables = ropes;
  for (const auto& kind : kKinds) {
    auto pool = std::make_shared<PagePool>(
        int64_t{1} << 24,
        PagePool::Hooks{[](int64_t bytes) { return Buffer::allocate(bytes); }, [] { return ~uint64_t{0}; }});
    CacheOptions options;
    options.scheme = *parse_scheme(kind.scheme, DType::kF16);
    options.window = kind.window;
    options.max_context = 1000;
    options.prefill_rows = 64;
    auto caches = make_layer_caches(tiny_model(), options, pool);
    BUTTER_CHECK(caches.has_value());
    std::vector<int32_t> ids;
    const Status status = load_cache(*caches, &ids, context, path);
    if (!status) {
      BUTTER_CHECK(pool->leased_bytes() == 0 && caches->position() == 0);
      touch(status.error().message().data(), status.error().message().size());
      continue;
    }
    if (caches->position() > 0) touch_blocks(*caches);
    touch(ids.data(), ids.size() * sizeof(int32_t));
  }
}

void load_bytes(const std::string& bytes) {
  const int file = ::memfd_create("cache", 0);
  BUTTER_CHECK(file >= 0);
  BUTTER_CHECK(::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  load("/proc/self/fd/" + std::to_string(file));
  ::close(file);
}

}  // namespace
}  // namespace butter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > (size_t{1} << 20)) return 0;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  butter::load_bytes(bytes);
  butter::mend_cache_file(bytes);
  butter::load_bytes(bytes);
  return 0;
}
