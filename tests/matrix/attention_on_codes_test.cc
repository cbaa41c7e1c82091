// What a query sees, and as what: every layer's attention, with every scheme, window and chunk, against
// attention worked out in double precision over an explicit mask, on rows that are raw, pinned, or
// decode()d from the codes of the same rows.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cache/cache_scheme.h"
#include "kernels/attend_testing.h"
#include "matrix/traced_model.h"

namespace butter {
namespace {

// The keys and values of one KV head as sealed rows read them, [positions][dim].
struct SealedRows {
  std::vector<float> keys, values;
};

// Encodes and decodes the full pages of a head's rows.
std::vector<float> through_codes(const std::vector<float>& rows, const RowShape& shape, const RowCodec& codec,
                                 int64_t record_bytes, const std::byte* centre, const RotaryTable& rotary,
                                 bool pins) {
  std::vector<float> result = rows;
  const auto width = static_cast<size_t>(kPageRows * shape.dim);
  Buffer scratch = Buffer::allocate(encode_scratch_bytes(shape.dim)).value();
  Buffer record = Buffer::allocate(record_bytes).value();
  for (size_t at = 0; at + width <= rows.size(); at += width) {
    std::vector<float> page(rows.begin() + static_cast<int64_t>(at),
                            rows.begin() + static_cast<int64_t>(at + width)),
        centre_of_page(width), decoded(width);
    const auto number = static_cast<int64_t>(at / width);
    RecordTail tail;
    if (centre != nullptr) {
      tail.centred = subtract_centre(centre, shape.dim, rotary, number, page.data(), centre_of_page.data());
      centre_rows(centre, shape.dim, rotary, number, centre_of_page.data());
    }
    if (pins && number == 0) std::fill_n(page.begin(), kPinnedRows * shape.dim, 0.0f);
    codec.encode(shape, page.data(), record.data(), &tail, scratch.data());
    codec.decode(shape, {record.data(), kPageRows, &tail}, decoded.data());
    for (size_t i = 0; i < width; ++i) {
      const bool centred = tail.centred >> (i / static_cast<size_t>(shape.dim)) & 1;
      result[at + i] = decoded[i] + (centred ? centre_of_page[i] : 0);
    }
  }
  return result;
}

class Expected {
 public:
  Expected(const TracedModel& model, const MatrixDevice& device, const TracedRun& raw, const KvScheme& scheme)
      : model_(model), raw_(raw), scheme_(scheme) {
    for (size_t layer = 0; layer < raw.layers.size(); ++layer) {
      const KvLayerShape& shape = model.kv_layers()[layer];
      const RotaryTable rotary(model.frequencies(shape), 2);
      sinks_.push_back(model.sinks(shape));
      for (int head = 0; head < shape.kv_heads; ++head)
        rows_.push_back(seal(shape, raw.layers[layer], head, rotary, device));
    }
  }

  // Attention of a query head at p in double, over what the mask says.
  std::vector<double> attend(size_t layer, int q_head, int64_t p, const Window& window) const {
    const KvLayerShape& shape = model_.kv_layers()[layer];
    const TracedLayer& raw = raw_.layers[layer];
    const std::vector<float>& query = raw.queries[static_cast<size_t>(p)];
    const int group = static_cast<int>(query.size()) / shape.key_dim / shape.kv_heads;
    const int head = q_head / group;
    const SealedRows& sealed = rows_[layer * static_cast<size_t>(shape.kv_heads) + static_cast<size_t>(head)];
    std::vector<double> scores, out(static_cast<size_t>(shape.value_dim));
    const double scale = model_.attention(shape).scale;
    const std::vector<float>& sinks = sinks_[layer];
    double most = sinks.empty() ? -INFINITY : static_cast<double>(sinks[static_cast<size_t>(q_head)]);
    double total = 0;
    for (int64_t k = 0; k <= p; ++k) {
      const std::vector<float>& keys = is_raw(p, k) ? raw.keys[static_cast<size_t>(head)] : sealed.keys;
      double sum = 0;
      for (int i = 0; i < shape.key_dim; ++i)
        sum += static_cast<double>(query[static_cast<size_t>(q_head * shape.key_dim + i)]) *
               keys[static_cast<size_t>(k * shape.key_dim + i)];
      scores.push_back(sees(window, p, k) ? sum * scale : -INFINITY);
      most = std::max(most, scores.back());
    }
    if (!sinks.empty()) total = std::exp(static_cast<double>(sinks[static_cast<size_t>(q_head)]) - most);
    for (double& score : scores) total += score = std::exp(score - most);
    for (int64_t k = 0; k <= p; ++k) {
      const std::vector<float>& values = is_raw(p, k) ? raw.values[static_cast<size_t>(head)] : sealed.values;
      for (int i = 0; i < shape.value_dim; ++i)
        out[static_cast<size_t>(i)] +=
            scores[static_cast<size_t>(k)] / total *
            static_cast<double>(values[static_cast<size_t>(k * shape.value_dim + i)]);
    }
    return out;
  }

 private:
  static bool sees(const Window& window, int64_t p, int64_t k) {
    return window.max_size == 0 || k < window.keep || p - k < window.max_size - window.keep;
  }
  // The rule of the design: its own page, and the pinned positions, are read raw.
  bool is_raw(int64_t p, int64_t k) const { return k / 64 == p / 64 || (scheme_.pins() && k < kPinnedRows); }

  SealedRows seal(const KvLayerShape& shape, const TracedLayer& raw, int head, const RotaryTable& rotary,
                  const MatrixDevice& device) const {
    std::vector<std::byte> centre;
    const std::vector<float>& keys = raw.keys[static_cast<size_t>(head)];
    if (scheme_.centres()) {
      centre.resize(static_cast<size_t>(4 * shape.key_dim));
      make_centre(keys.data(), shape.key_dim, rotary, centre.data());
    }
    const auto side = [&](Side which, const std::vector<float>& rows, const std::byte* base) {
      const RowFormat& format = scheme_.format(which);
      const RowShape row = shape.row_shape(which, scheme_);
      return through_codes(rows, row, device.reference() ? *format.reference : *format.cpu(device.isa),
                           format.record_bytes(row), base, rotary, scheme_.pins());
    };
    return {side(Side::kKey, keys, centre.empty() ? nullptr : centre.data()),
            side(Side::kValue, raw.values[static_cast<size_t>(head)], nullptr)};
  }

  const TracedModel& model_;
  const TracedRun& raw_;
  const KvScheme scheme_;
  std::vector<SealedRows> rows_;           // by layer and KV head
  std::vector<std::vector<float>> sinks_;  // by layer
};

// The smaller of the model's window and the user's; the user's keep goes with his.
Window effective(const Window& model, const Window& user) {
  if (model.max_size == 0) return user;
  return user.max_size == 0 || user.max_size >= model.max_size ? Window{model.max_size, 0} : user;
}

// As a share of the output (attend_testing.h has the reasons): the reference reads codes in float32; the CPU
// has queries and weights of 8 bits in decode steps, and bf16 in prefill steps where AMX may. That is for the
// usual scale of scores, 1 / sqrt(dim): a model that sharpens them (Muse Glimmer, by 3.87) sharpens their
// errors as much.
double bound_of(const MatrixDevice& device, bool decode, double sharpness) {
  if (device.reference()) return 1e-3;
  if (decode) return 4e-2 * sharpness;
  return device.isa == Isa::kAmx ? 5e-2 * sharpness : 1e-3;
}

class AttentionMatrix : public testing::TestWithParam<std::tuple<std::string, size_t>> {
 protected:
  AttentionMatrix()
      : device_(matrix_devices()[std::get<1>(GetParam())]),
        fixture_(load_fixture(std::get<0>(GetParam()))),
        model_(fixture_.name, device_) {}

  // Whether each position runs on the decode kernels: in a step of few rows.
  static std::vector<bool> decode_rows(const TracedRun& run) {
    std::vector<bool> decode;
    for (size_t rows : run.steps) decode.insert(decode.end(), rows, rows < 16);
    return decode;
  }

  // Runs of other chunks must give the same bits, up to the first position that ran on other kernels.
  void expect_same_as_other_chunks(const std::string& what, const TracedRun& raw,
                                   const std::vector<Logits>& attended) {
    const std::vector<bool> kernels = decode_rows(raw);
    for (const auto& [others, other] : runs_[what]) {
      const auto differ = std::mismatch(kernels.begin(), kernels.end(), others.begin()).first;
      const auto same = device_.reference() ? kernels.size() : static_cast<size_t>(differ - kernels.begin());
      for (size_t layer = 0; layer < attended.size(); ++layer) {
        ASSERT_TRUE(std::equal(attended[layer].begin(), attended[layer].begin() + static_cast<int64_t>(same),
                               other[layer].begin()))
            << what << ": chunks of " << raw.steps[0] << " tokens answer otherwise in layer " << layer;
      }
    }
    runs_[what].emplace_back(kernels, attended);
  }

  void expect_exact(const std::string& what, const TracedRun& raw, const Expected& expected,
                    const Window& user, const std::vector<Logits>& attended) {
    const std::vector<bool> decode = decode_rows(raw);
    for (size_t layer = 0; layer < attended.size(); ++layer) {
      const KvLayerShape& shape = model_.kv_layers()[layer];
      const Window window = effective(model_.model_window(shape), user);
      const int q_heads = static_cast<int>(attended[layer][0].size()) / shape.value_dim;
      const double sharpness = std::max(1.0, static_cast<double>(model_.attention(shape).scale) *
                                                 std::sqrt(static_cast<double>(shape.key_dim)));
      for (int64_t p : checked_positions(static_cast<int64_t>(attended[layer].size()))) {
        const int head = static_cast<int>(p) % q_heads;
        const std::vector<double> exact = expected.attend(layer, head, p, window);
        const double share =
            share_of(attended[layer][static_cast<size_t>(p)].data() + head * shape.value_dim, exact);
        worst_ = share <= worst_ ? worst_ : share;
        ASSERT_LE(share, bound_of(device_, decode[static_cast<size_t>(p)], sharpness))
            << what << " chunks of " << raw.steps[0] << " layer " << layer << " head " << head << " position "
            << p;
      }
    }
  }

  // Both sides of every page boundary, and some between.
  static std::vector<int64_t> checked_positions(int64_t count) {
    std::vector<int64_t> positions;
    for (int64_t p = 0; p < count; ++p) {
      const int64_t row = p % kPageRows;
      if (row < 2 || row > 61 || p % (kWholeMatrix ? 7 : 19) == 3) positions.push_back(p);
    }
    return positions;
  }

  static double share_of(const float* found, const std::vector<double>& exact) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += (found[i] - exact[i]) * (found[i] - exact[i]);
      norm += exact[i] * exact[i];
    }
    return std::sqrt(error / norm);
  }

  const MatrixDevice device_;
  const Fixture fixture_;
  TracedModel model_;
  double worst_ = 0;
  // By scheme and window: which positions ran on the decode kernels, and what came of it.
  std::map<std::string, std::vector<std::pair<std::vector<bool>, std::vector<Logits>>>> runs_;
};

INSTANTIATE_TEST_SUITE_P(Models, AttentionMatrix,
                         testing::Combine(testing::ValuesIn(matrix_models()),
                                          testing::Range<size_t>(0, matrix_devices().size())),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  matrix_devices()[std::get<1>(instance.param)].label;
                         });

TEST_P(AttentionMatrix, QueriesSeeWhatTheMaskSaysAndCodesMeanWhatTheyDecodeTo) {
  for (size_t chunk : matrix_chunks()) {
    const TracedRun raw = model_.run_raw(fixture_.input_ids, chunk);
    for (const std::string& name : matrix_schemes()) {
      const KvScheme scheme = *parse_scheme(name, model_.raw());
      const Expected expected(model_, device_, raw, scheme);
      for (const Window& user : matrix_windows()) {
        const std::string what = fmt::format("{} window {}/{}", name, user.max_size, user.keep);
        const std::vector<Logits> attended = model_.run_scheme(scheme, user, fixture_.input_ids, raw);
        expect_same_as_other_chunks(what, raw, attended);
        expect_exact(what, raw, expected, user, attended);
        if (HasFatalFailure()) return;
      }
    }
  }
  std::printf("worst error of an output: %.2e of it\n", worst_);
}

}  // namespace
}  // namespace butter
