#include "cache/cache_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "cache/cache_scheme.h"
#include "cache/cache_testing.h"

namespace butter {
namespace {

CacheModel model_of(int layers, int kv_heads, int dim, std::vector<Window> windows) {
  CacheModel model;
  model.layers = layers;
  model.window_classes = std::move(windows);
  for (int i = 0; i < layers; ++i) {
    model.kv_layers.push_back({i, kv_heads, dim, dim, i % static_cast<int>(model.window_classes.size())});
  }
  return model;
}

struct Geometry {
  const char* name;
  CacheModel model;
};

std::vector<Geometry> geometries() {
  return {{"fixture", model_of(4, 2, 64, {{0, 0}})},
          {"mistral_swa", model_of(4, 2, 64, {{16, 0}})},
          {"every other layer slides", model_of(4, 2, 16, {{128, 0}, {0, 0}})},
          {"small", small_model()}};
}

const Window kWindows[] = {{0, 0}, {64, 0}, {65, 4}, {100, 4}, {200, 100}};
const char* const kCodes[] = {"aura3v2", "affine4", "k=raw,v=aura8", "affine8:plain"};
constexpr TestScheme kSchemes[] = {TestScheme::kRaw, TestScheme::kStamps, TestScheme::kStampedKeys};

// That can store the model's rows.
std::vector<KvScheme> all_schemes(const CacheModel& model) {
  std::vector<KvScheme> schemes;
  for (TestScheme scheme : kSchemes) schemes.push_back(test_scheme(scheme));
  for (const char* name : kCodes) {
    const KvScheme scheme = *parse_scheme(name, DType::kF16);
    const bool takes = std::all_of(model.kv_layers.begin(), model.kv_layers.end(), [&](const auto& layer) {
      return scheme.key->takes_dim(layer.key_dim) && scheme.value->takes_dim(layer.value_dim);
    });
    if (takes) schemes.push_back(scheme);
  }
  return schemes;
}

// Feeds `tokens` positions without writing rows: only the pages count here.
void feed_blank(CacheSet& caches, int64_t tokens, int64_t step_rows) {
  while (tokens > 0) {
    const int64_t in_page = caches.position() % kPageRows;
    const int64_t most =
        step_rows < kPageRows ? std::min(step_rows, kPageRows - in_page) : step_rows - in_page;
    const int64_t rows = std::min(tokens, most);
    ASSERT_TRUE(caches.begin_step(static_cast<int>(rows)));
    caches.commit_step(0);
    tokens -= rows;
  }
}

CacheSet make_caches(const CacheModel& model, const CacheOptions& options, const TestPool& pool) {
  return std::move(*make_layer_caches(model, options, pool.pool));
}

TEST(CachePlan, PlannedIsAllocatedToTheByte) {
  for (const Geometry& geometry : geometries()) {
    for (const KvScheme& scheme : all_schemes(geometry.model)) {
      for (const Window& window : kWindows) {
        for (int64_t context : {1, 63, 64, 65, 200, 4096}) {
          for (int rows : {1, 64, 512}) {
            SCOPED_TRACE(testing::Message() << geometry.name << " scheme " << scheme_name(scheme)
                                            << " window " << window.max_size << "/" << window.keep
                                            << " context " << context << " rows " << rows);
            CacheOptions options;
            options.scheme = scheme;
            options.window = window;
            options.max_context = context;
            options.prefill_rows = rows;
            const auto plan = plan_caches(geometry.model, options);
            ASSERT_TRUE(plan) << plan.error().message();
            TestPool pool;
            CacheSet caches = make_caches(geometry.model, options, pool);
            feed_blank(caches, context, rows);
            ASSERT_EQ(caches.held_bytes(), plan->total_bytes);
            ASSERT_EQ(pool.pool->leased_bytes(), plan->total_bytes);
            ASSERT_LE(pool.pool->peak_leased_bytes(), plan->total_bytes + plan->prefill_bytes);
            ASSERT_EQ(plan->total_bytes, plan->sealed_bytes + plan->open_bytes + plan->pinned_bytes +
                                             plan->centre_bytes + plan->recurrent_bytes);
            ASSERT_GE(plan->prefill_bytes, 0);
            int64_t layer_bytes = 0;
            for (const LayerMemory& layer : plan->layers) layer_bytes += layer.bytes;
            ASSERT_EQ(layer_bytes, plan->total_bytes);
            const std::vector<LayerMemory> held = caches.layer_caches();
            for (const LayerMemory& layer : plan->layers) {
              ASSERT_EQ(held[static_cast<size_t>(layer.layer)].bytes, layer.bytes) << "layer " << layer.layer;
            }
          }
        }
      }
    }
  }
}

TEST(CachePlan, RawWithoutWindowPeaksAtItsTotal) {
  const CacheModel model = model_of(4, 2, 64, {{0, 0}});
  for (int64_t context : {1, 64, 200, 4096}) {
    for (int rows : {1, 64, 512}) {
      CacheOptions options;
      options.scheme = test_scheme(TestScheme::kRaw);
      options.max_context = context;
      options.prefill_rows = rows;
      const CachePlan plan = *plan_caches(model, options);
      EXPECT_EQ(plan.prefill_bytes, 0);
      TestPool pool;
      CacheSet caches = make_caches(model, options, pool);
      feed_blank(caches, context, rows);
      EXPECT_EQ(pool.pool->peak_leased_bytes(), plan.total_bytes);
    }
  }
}

TEST(CachePlan, LongWindowedPrefillReachesThePlannedPeak) {
  const CacheModel model = model_of(4, 2, 64, {{0, 0}});
  for (const KvScheme& scheme : all_schemes(model)) {
    for (const Window& window : {Window{64, 0}, Window{65, 4}, Window{200, 100}}) {
      for (int rows : {64, 512}) {
        CacheOptions options;
        options.scheme = scheme;
        options.window = window;
        options.max_context = 4096;
        options.prefill_rows = rows;
        const CachePlan plan = *plan_caches(model, options);
        TestPool pool;
        CacheSet caches = make_caches(model, options, pool);
        // Begins inside a page, so that a block for the next open page is needed too.
        feed_blank(caches, 1, 1);
        feed_blank(caches, 4095 - 1, rows);
        const int64_t planned = plan.total_bytes + plan.prefill_bytes;
        EXPECT_LE(pool.pool->peak_leased_bytes(), planned);
        const int64_t slack = caches.layout().classes[0].raw.bytes + caches.layout().classes[0].sealed.bytes;
        EXPECT_GE(pool.pool->peak_leased_bytes(), planned - slack);
      }
    }
  }
}

// Batches of a few tokens cross page boundaries wherever they like.
TEST(CachePlan, ShortStepsAcrossBoundariesStayWithinThePlan) {
  for (const Geometry& geometry : geometries()) {
    for (const KvScheme& scheme : all_schemes(geometry.model)) {
      for (const Window& window : kWindows) {
        CacheOptions options;
        options.scheme = scheme;
        options.window = window;
        options.max_context = 1500;
        options.prefill_rows = 64;
        const CachePlan plan = *plan_caches(geometry.model, options);
        TestPool pool;
        CacheSet caches = make_caches(geometry.model, options, pool);
        for (int64_t rows = 1; caches.position() + rows <= 1500; rows = rows % 15 + 1) {
          ASSERT_TRUE(caches.begin_step(static_cast<int>(rows)));
          caches.commit_step(0);
        }
        EXPECT_LE(pool.pool->peak_leased_bytes(), plan.total_bytes + plan.prefill_bytes)
            << geometry.name << " " << scheme_name(scheme) << " window " << window.max_size;
      }
    }
  }
}

TEST(CachePlan, Qwen3RawAt40960IsTheRequiredFigure) {
  CacheOptions options;
  options.scheme = test_scheme(TestScheme::kRaw, DType::kBF16);
  options.max_context = 40960;
  options.prefill_rows = 512;
  const CachePlan plan = *plan_caches(model_of(28, 8, 128, {{0, 0}}), options);
  EXPECT_EQ(plan.sealed_bytes, 4697620480);  // 4.375 GiB (R13)
  EXPECT_EQ(plan.total_bytes, 4697620480);
  EXPECT_EQ(plan.raw_bytes, 4697620480);
  EXPECT_EQ(plan.bytes_per_token, 28 * 8 * 2 * 128 * 2);
  EXPECT_EQ(plan.ratio_sealed, 1);
  EXPECT_EQ(plan.ratio_at_context, 1);
}

// R13: codes, scales and biases exactly; tails, pinned rows, the open page and centres beside them.
TEST(CachePlan, Qwen3CodesAt40960AreTheRequiredFigures) {
  constexpr double kGiB = 1 << 30;
  const CacheModel model = model_of(28, 8, 128, {{0, 0}});
  const struct {
    const char* scheme;
    double gib;  // 4.375 · bits / 16
  } cases[] = {{"affine8", 4.375 * 8.5 / 16}, {"affine4", 4.375 * 5 / 16}};
  EXPECT_NEAR(cases[0].gib, 2.324, 5e-4);
  EXPECT_NEAR(cases[1].gib, 1.367, 5e-4);
  for (const auto& [scheme, gib] : cases) {
    CacheOptions options;
    options.scheme = *parse_scheme(scheme, DType::kBF16);
    options.max_context = 40960;
    options.prefill_rows = 512;
    const CachePlan plan = *plan_caches(model, options);
    const int64_t raw_row = 28 * 8 * 2 * 128 * 2, tails = 640 * 28 * 8 * 16;
    EXPECT_EQ(plan.sealed_bytes, static_cast<int64_t>(gib * kGiB) + tails) << scheme;
    EXPECT_EQ(plan.open_bytes, 64 * raw_row);
    EXPECT_EQ(plan.pinned_bytes, 4 * raw_row);
    EXPECT_EQ(plan.centre_bytes, 28 * 8 * (2 * 128 + 2 * 16));  // b, and which pairs are exact
    EXPECT_EQ(plan.total_bytes, plan.sealed_bytes + plan.open_bytes + plan.pinned_bytes + plan.centre_bytes);
    EXPECT_EQ(plan.raw_bytes, 4697620480);
    EXPECT_EQ(plan.ratio_at_context, 4697620480.0 / static_cast<double>(plan.total_bytes));
  }
}

TEST(CachePlan, SealedPagesAreAsSmallAsPromised) {
  const struct {
    const char* scheme;
    int layers, kv_heads, dim;
    double ratio;
  } cases[] = {{"aura4v4", 30, 3, 64, 3.8}, {"aura3v3", 30, 3, 64, 5.0},  {"aura3v2", 30, 3, 64, 6.0},
               {"aura2v2", 30, 3, 64, 7.3}, {"aura3v2", 28, 8, 128, 6.2}, {"affine8", 30, 3, 64, 1.87},
               {"affine4", 30, 3, 64, 3.16}};
  for (const auto& c : cases) {
    CacheOptions options;
    options.scheme = *parse_scheme(c.scheme, DType::kF16);
    options.max_context = 8192;
    options.prefill_rows = 512;
    const CachePlan plan = *plan_caches(model_of(c.layers, c.kv_heads, c.dim, {{0, 0}}), options);
    EXPECT_GE(plan.ratio_sealed, c.ratio) << c.scheme << " d " << c.dim;
    std::printf("%s, %d heads of %d: ratio_sealed %.3f\n", c.scheme, c.kv_heads, c.dim, plan.ratio_sealed);
  }
}

// The examples of the format's description, a page of one layer.
TEST(CachePlan, APageOfALayerIsTheDescribedBytes) {
  const KvScheme scheme = *parse_scheme("aura3v2", DType::kF16);
  EXPECT_EQ(sealed_layout({{0, 3, 64, 64, 0}}, scheme).bytes, 8128);
  EXPECT_EQ(sealed_layout({{0, 8, 128, 128, 0}}, scheme).bytes, 42112);
}

TEST(CachePlan, RatiosAreRawOverMeasured) {
  const CacheModel model = model_of(4, 2, 64, {{0, 0}});
  CacheOptions options;
  options.scheme = test_scheme(TestScheme::kStamps);
  options.max_context = 4096;
  options.prefill_rows = 512;
  const CachePlan plan = *plan_caches(model, options);
  CacheOptions raw = options;
  raw.scheme = test_scheme(TestScheme::kRaw);
  const int64_t raw_bytes = plan_caches(model, raw)->total_bytes;
  EXPECT_EQ(plan.raw_bytes, raw_bytes);
  EXPECT_DOUBLE_EQ(plan.ratio_at_context,
                   static_cast<double>(raw_bytes) / static_cast<double>(plan.total_bytes));
  const int64_t record = stamp_format().record_bytes({64, DType::kF16, 0, Side::kKey});
  const int64_t page = 4 * round_up(2 * 2 * record, Buffer::kAlignment);
  EXPECT_EQ(plan.sealed_bytes, 64 * page);
  EXPECT_DOUBLE_EQ(plan.ratio_sealed, static_cast<double>(raw_bytes) / static_cast<double>(64 * page));
  EXPECT_EQ(plan.kv_cache, "stamps");
}

TEST(CachePlan, WindowIsPaidForNotTheContext) {
  const CacheModel model = model_of(4, 2, 64, {{0, 0}});
  CacheOptions options;
  options.scheme = test_scheme(TestScheme::kRaw);
  options.window = {256, 4};
  options.max_context = 4096;
  options.prefill_rows = 64;
  const int64_t at_4096 = plan_caches(model, options)->total_bytes;
  options.max_context = 1 << 30;
  EXPECT_EQ(plan_caches(model, options)->total_bytes, at_4096);
}

TEST(CachePlan, ModelWithoutKvLayersTakesNothing) {
  CacheModel model;
  model.layers = 3;
  CacheOptions options;
  options.scheme = test_scheme(TestScheme::kRaw);
  options.max_context = 100;
  const auto plan = plan_caches(model, options);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->total_bytes, 0);
  EXPECT_EQ(plan->ratio_at_context, 1);
}

TEST(CachePlan, HugeContextsDoNotOverflow) {
  CacheOptions options;
  options.scheme = test_scheme(TestScheme::kRaw);
  options.max_context = int64_t{1} << 31;
  options.prefill_rows = 512;
  const auto plan = plan_caches(model_of(4096, 64, 1024, {{0, 0}}), options);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->total_bytes, (int64_t{1} << 31) * 4096 * 64 * 2 * 1024 * 2);
  const auto beyond = plan_caches(model_of(4096, 128, 1024, {{0, 0}}), options);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().message(),
            "the cache of 2147483648 positions takes 4.61e+18 bytes; at most 2^61 are counted (a smaller "
            "--max-context takes less)");
}

}  // namespace
}  // namespace butter
