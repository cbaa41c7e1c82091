#include "matrix/traced_model.h"

#include "families/family.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace butter {
namespace {

constexpr int kStepRows = 256;
constexpr int64_t kMaxPositions = 512;

template <typename T>
T taken(Result<T> result) {
  EXPECT_TRUE(result) << result.error().message();
  BUTTER_CHECK(result.has_value());
  return std::move(*result);
}

void expect_ok(const Status& status) {
  EXPECT_TRUE(status) << status.error().message();
}

std::vector<float> row_of(const float* rows, int64_t row, int width) {
  return {rows + row * width, rows + (row + 1) * width};
}

void append_rows(const float* rows, int64_t count, int width, Logits& to) {
  for (int64_t row = 0; row < count; ++row) to.push_back(row_of(rows, row, width));
}

}  // namespace

TracedModel::TracedModel(const std::string& fixture, const MatrixDevice& device) {
  const ScopedIsa forced(isa_name(device.isa));
  device_ = taken(device.reference() ? make_reference_device() : make_cpu_device(1));
  checkpoint_ = taken(Checkpoint::open(test_data("fixtures/" + fixture)));
  spec_ = taken(make_model_spec(*checkpoint_));
  WeightLoader loader(*checkpoint_, *device_);
  program_ = taken(build_program(spec_, loader));
  weight_buffers_ = loader.take_buffers();
  limits_.rows = kStepRows;
  limits_.logit_rows = 1;
  limits_.sequences = 1;
  limits_.max_positions = kMaxPositions;
  limits_.raw = device_->raw_dtype(spec_.kv_dtype);
  limits_.seals = true;
  prepared_ = taken(device_->prepare(program_, limits_));
  Device* pages_from = device_.get();
  pool_ = std::make_shared<PagePool>(
      int64_t{256} << 20,
      PagePool::Hooks{[pages_from](int64_t bytes) { return pages_from->allocate_pages(bytes); },
                      [pages_from] { return pages_from->completed(); }});
}

CacheSet TracedModel::make_caches(const KvScheme& scheme, const Window& window, bool model_windows) {
  CacheModel model{static_cast<int>(spec_.layers.size()), program_.kv_layers, program_.window_classes,
                   program_.state_layers};
  if (!model_windows) std::fill(model.window_classes.begin(), model.window_classes.end(), Window{});
  CacheOptions options;
  options.scheme = scheme;
  options.window = window;
  options.max_context = kMaxPositions;
  options.prefill_rows = kStepRows;
  return taken(make_layer_caches(model, options, pool_));
}

std::vector<double> TracedModel::frequencies(const KvLayerShape& layer) const {
  if (layer.rope_table < 0) return {};
  return program_.rope_tables[static_cast<size_t>(layer.rope_table)].frequencies(kMaxPositions);
}

size_t TracedModel::kv_index(int layer) const {
  const auto found = std::find_if(program_.kv_layers.begin(), program_.kv_layers.end(),
                                  [&](const KvLayerShape& shape) { return shape.layer == layer; });
  BUTTER_CHECK(found != program_.kv_layers.end());
  return static_cast<size_t>(found - program_.kv_layers.begin());
}

const AttentionSpec& TracedModel::attention(const KvLayerShape& layer) const {
  for (const MixerSpec& mixer : spec_.layers[static_cast<size_t>(layer.layer)].mixers) {
    if (const auto* found = std::get_if<AttentionSpec>(&mixer.kind)) return *found;
  }
  BUTTER_CHECK(!"a layer with a KV cache has attention");
  return *std::get_if<AttentionSpec>(&spec_.layers[0].mixers[0].kind);
}

std::vector<float> TracedModel::sinks(const KvLayerShape& layer) const {
  const std::optional<TensorRef>& ref = attention(layer).sinks;
  if (!ref) return {};
  return float_tensor(taken(checkpoint_->require_tensor(ref->name, ref->shape))).values;
}

void TracedModel::step(CacheSet& caches, std::span<const int32_t> ids, const TraceFn& trace) {
  expect_ok(caches.begin_step(static_cast<int>(ids.size())));
  const StepSequence sequence = caches.step_view(0);
  expect_ok(device_->start_step(*prepared_, {ids, std::span(&sequence, 1), {}}, &trace));
  expect_ok(device_->finish_step(*prepared_));
  caches.commit_step(device_->submitted());
}

TracedRun TracedModel::run_raw(std::span<const int32_t> ids, size_t chunk) {
  TracedRun run;
  run.layers.resize(program_.kv_layers.size());
  CacheSet caches = make_caches({&raw_format(), &raw_format(), raw()}, {}, false);
  Logits queries;  // as the last op that wrote them left them
  const TraceFn trace = [&](const OpLabel& label, const Slot& slot, const float* rows, int64_t count) {
    if (slot.name == "q") {
      queries.clear();
      append_rows(rows, count, slot.width, queries);
    }
    if (std::string_view(label.what) != "attend") return;
    TracedLayer& layer = run.layers[kv_index(label.layer)];
    layer.queries.insert(layer.queries.end(), queries.begin(), queries.end());
    append_rows(rows, count, slot.width, layer.attended);
  };
  for (size_t at = 0; at < ids.size(); at += run.steps.back()) {
    run.steps.push_back(std::min(chunk, ids.size() - at));
    step(caches, ids.subspan(at, run.steps.back()), trace);
  }
  read_rows(caches, run);
  return run;
}

// The keys and values of all positions, from the pages.
void TracedModel::read_rows(CacheSet& caches, TracedRun& run) {
  const int64_t positions = caches.position();
  expect_ok(caches.begin_step(1));
  const StepSequence view = caches.step_view(0);
  for (size_t kv_layer = 0; kv_layer < run.layers.size(); ++kv_layer) {
    const KvLayerShape& shape = program_.kv_layers[kv_layer];
    const ClassPages& pages = view.classes[static_cast<size_t>(shape.window_class)];
    const auto index = static_cast<size_t>(program_.index_in_class(static_cast<int>(kv_layer)));
    for (Side side : {Side::kKey, Side::kValue}) {
      const RowShape row = shape.row_shape(side, raw());
      auto& heads = side == Side::kKey ? run.layers[kv_layer].keys : run.layers[kv_layer].values;
      heads.resize(static_cast<size_t>(shape.kv_heads));
      for (size_t head = 0; head < heads.size(); ++head) {
        std::vector<float>& rows = heads[head];
        rows.resize(static_cast<size_t>(pages_for(positions) * kPageRows * row.dim));
        for (int64_t page = 0; page < pages_for(positions); ++page) {
          const RecordOffsets& offsets = pages.sealed_layout->layers[index].heads[head];
          const std::byte* at =
              pages.sealed[static_cast<size_t>(page)] + (side == Side::kKey ? offsets.key : offsets.value);
          const int held = static_cast<int>(std::min<int64_t>(kPageRows, positions - page * kPageRows));
          raw_format().reference->decode(row, {at, held}, rows.data() + page * kPageRows * row.dim);
        }
        rows.resize(static_cast<size_t>(positions * row.dim));
      }
    }
  }
  caches.abort_step(device_->submitted());
}

std::vector<Logits> TracedModel::run_scheme(const KvScheme& scheme, const Window& window,
                                            std::span<const int32_t> ids, const TracedRun& raw) {
  std::vector<Logits> attended(raw.layers.size());
  CacheSet caches = make_caches(scheme, window, true);
  const TraceFn trace = [&](const OpLabel& label, const Slot& slot, float* rows, int64_t count) {
    if (std::string_view(label.what) != "attend") return;
    const size_t layer = kv_index(label.layer);
    append_rows(rows, count, slot.width, attended[layer]);
    const Logits& exact = raw.layers[layer].attended;
    for (int64_t row = 0; row < count; ++row)
      std::copy_n(exact[static_cast<size_t>(caches.position() + row)].data(), slot.width,
                  rows + row * slot.width);
  };
  size_t at = 0;
  for (size_t rows : raw.steps) {
    step(caches, ids.subspan(at, rows), trace);
    at += rows;
  }
  return attended;
}

}  // namespace butter
