// Sealing pages whose rows are extreme: what every format makes of them is finite, and near where it can be.
#include "kernels/cache_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/buffer.h"
#include "kernels/attend_testing.h"
#include "kernels/program.h"

namespace butter {
namespace {

constexpr int kDim = 64;
constexpr int kHeads = 2;

// A full page, and a position after it, of a layer with two KV heads.
class SealedPage {
 public:
  // rows [64][kDim]: the keys of head 0 and the values of head 1; the others are ordinary.
  SealedPage(const KvScheme& scheme, const std::vector<float>& rows, const SealOptions& options)
      : scheme_(scheme),
        rotary_(frequencies(), 4),
        raw_layout_(raw_layout({shape()}, scheme.raw, kPageRows)),
        pinned_layout_(raw_layout({shape()}, scheme.raw, kPinnedRows)),
        sealed_layout_(sealed_layout({shape()}, scheme)),
        centre_layout_(centre_layout({shape()})) {
    for (auto* block : {&raw_, &next_, &pinned_, &sealed_, &centre_})
      *block = Buffer::allocate(raw_layout_.bytes + sealed_layout_.bytes + centre_layout_.bytes).value();
    raw_pages_[0] = {raw_.data(), &raw_layout_.layers[0]};
    raw_pages_[1] = {next_.data(), &raw_layout_.layers[0]};
    sealed_pages_[0] = sealed_.data();
    const AttendSequence fill{view(0), 0, 0, kPageRows};
    const std::vector<float> ordinary = random_floats(5, int64_t{kPageRows + 1} * kDim);
    NonFinite non_finite;
    for (int row = 0; row <= kPageRows; ++row) {
      std::vector<float> key(kHeads * kDim), value(kHeads * kDim);
      const float* common = ordinary.data() + row * kDim;
      const float* extreme = row < kPageRows ? rows.data() + row * kDim : common;
      std::copy_n(extreme, kDim, key.begin());
      std::copy_n(common, kDim, key.begin() + kDim);
      std::copy_n(common, kDim, value.begin());
      std::copy_n(extreme, kDim, value.begin() + kDim);
      const AttendSequence at{view(row / kPageRows), 0, 0, kPageRows + 1};
      write_kv_row(at, row, key.data(), value.data(), kScalarConverter, non_finite);
    }
    EXPECT_FALSE(non_finite.found());
    Buffer scratch = Buffer::allocate(seal_scratch_bytes(shape())).value();
    for (int head = 0; head < kHeads && makes_centre(fill); ++head)
      make_head_centre(fill, head, options, scratch.data());
    for (int head = 0; head < kHeads; ++head) seal_head(fill, 0, head, options, scratch.data());
  }

  // The rows that were given, as the page holds them; and as they are read, where codes are.
  std::vector<float> stored(Side side) const {
    std::vector<float> rows(size_t{kPageRows} * kDim);
    const int head = side == Side::kKey ? 0 : 1;
    raw_format().reference->decode(
        shape().row_shape(side, scheme_.raw),
        {side == Side::kKey ? raw_pages_[0].key(head) : raw_pages_[0].value(head), kPageRows}, rows.data());
    return rows;
  }
  std::vector<float> read(Side side, const SealOptions& options) const {
    std::vector<float> rows(size_t{kPageRows} * kDim), centre(rows.size());
    const RecordOffsets& offsets = sealed_layout_.layers[0].heads[side == Side::kKey ? 0 : 1];
    const auto* tail = reinterpret_cast<const RecordTail*>(sealed_.data() + offsets.tail);
    const RowFormat& format = scheme_.format(side);
    const RowCodec& codec = options.reference ? *format.reference : *format.cpu(options.isa);
    codec.decode(shape().row_shape(side, scheme_),
                 {sealed_.data() + (side == Side::kKey ? offsets.key : offsets.value), kPageRows, tail},
                 rows.data());
    if (side == Side::kValue || !scheme_.centres()) return rows;
    centre_rows(centre_.data() + centre_layout_.layers[0].heads[0].key, kDim, rotary_, 0, centre.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (tail->centred >> (i / kDim) & 1) rows[i] += centre[i];
    }
    return rows;
  }

  // What the page says that it was coded with, and what is there.
  CentreId named_centre(int head) const {
    const int64_t tail = sealed_layout_.layers[0].heads[static_cast<size_t>(head)].tail;
    return reinterpret_cast<const RecordTail*>(sealed_.data() + tail)->centre;
  }
  CentreId own_centre(int head) const {
    return centre_id(centre_.data() + centre_layout_.layers[0].heads[static_cast<size_t>(head)].key, kDim);
  }

  // Attention at position 64 over all of it.
  std::vector<float> attend(const SealOptions& options) {
    const AttendSequence sequence{view(1), kPageRows, 0, 1};
    const std::vector<float> queries = random_floats(7, int64_t{2 * kHeads} * kDim);
    std::vector<float> out(queries.size(), NAN);
    AttendBatch batch{&sequence, 1, queries.data(), out.data(), 2 * kHeads, 0.125f};
    if (options.reference) {
      reference::attend(batch);
    } else {
      const AttendLimits limits{1, kPageRows + 1, 2 * kHeads, kHeads, kDim, kDim, 1};
      Buffer scratch = Buffer::allocate(cpu::attend_scratch_bytes(limits)).value();
      ThreadPool pool(1);
      pool.run([&](const Worker& worker) { cpu::attend(batch, options.isa, scratch.data(), worker); });
    }
    return out;
  }

 private:
  static KvLayerShape shape() { return {2, kHeads, kDim, kDim, 0}; }
  static std::vector<double> frequencies() {
    std::vector<double> frequencies;
    for (int i = 0; i < kDim / 2; ++i) frequencies.push_back(std::pow(1e4, -2.0 * i / kDim));
    return frequencies;
  }
  // As a step sees it that begins in page `first_raw`.
  KvView view(int64_t first_raw) const {
    KvView view;
    view.shape = shape();
    view.scheme = scheme_;
    view.sealed = sealed_pages_;
    view.end_sealed = 1;
    view.sealed_layout = &sealed_layout_.layers[0];
    view.raw = raw_pages_ + first_raw;
    view.first_raw = first_raw;
    view.end_raw = first_raw + 1;
    if (scheme_.pins()) view.pinned = {pinned_.data(), &pinned_layout_.layers[0]};
    if (scheme_.centres()) view.centre = {centre_.data(), &centre_layout_.layers[0], &rotary_};
    return view;
  }

  KvScheme scheme_;
  RotaryTable rotary_;
  BlockLayout raw_layout_, pinned_layout_, sealed_layout_, centre_layout_;
  mutable Buffer raw_, next_, pinned_, sealed_, centre_;
  RawPage raw_pages_[2];
  const std::byte* sealed_pages_[1];
};

struct Extreme {
  const char* name;
  DType raw;
  std::vector<float> rows;
};

// Pages of extreme rows, and one where they stand among ordinary ones.
std::vector<Extreme> extremes() {
  std::vector<Extreme> pages;
  const auto filled = [](float value) { return std::vector<float>(size_t{kPageRows} * kDim, value); };
  const auto alternating = [&](float value) {
    std::vector<float> rows = filled(value);
    for (size_t i = 0; i < rows.size(); i += 2) rows[i] = -value;
    return rows;
  };
  for (DType raw : {DType::kF16, DType::kBF16}) {
    pages.push_back({"zero", raw, filled(0)});
    pages.push_back({"equal", raw, filled(3.25f)});
    pages.push_back({"largest fp16", raw, filled(65504)});
    pages.push_back({"both ends of fp16", raw, alternating(65504)});
    pages.push_back({"denormal", raw, filled(raw == DType::kF16 ? 6e-8f : 1e-39f)});
    std::vector<float> mixed = random_floats(3, int64_t{kPageRows} * kDim);
    const auto fill = [&](int row, float value) { std::fill_n(mixed.begin() + row * kDim, kDim, value); };
    for (int row : {1, 9}) fill(row, 0);
    fill(10, -65504);
    fill(11, 6e-8f);
    fill(12, 1);
    if (raw == DType::kBF16) mixed[20 * kDim + 7] = 1e5f;
    pages.push_back({"mixed", raw, mixed});
  }
  std::vector<float> outlier = random_floats(4, int64_t{kPageRows} * kDim);
  outlier[30 * kDim + 3] = 1e5f;
  outlier[31 * kDim + 3] = -1e5f;
  pages.push_back({"outliers of 1e5", DType::kBF16, outlier});
  return pages;
}

// Squares of a row, with what a bound is about.
double norm(const float* row) {
  double sum = 0;
  for (int i = 0; i < kDim; ++i) sum += static_cast<double>(row[i]) * row[i];
  return std::sqrt(sum);
}

// The error of a row is at most a share of its norm, for codes of so many bits; and, since scales have 15
// binades below the page's largest (aura) or 16 bits (affine, which also clamps beyond 65504), a little of
// the largest.
double share_of(const RowFormat& format) {
  switch (format.bits) {
    case 2:
      return 0.75;
    case 3:
      return 0.5;
    case 4:
      return 0.35;
    default:
      return 0.1;
  }
}

void expect_bounded(const KvScheme& scheme, const Extreme& extreme, const SealOptions& options) {
  SealedPage page(scheme, extreme.rows, options);
  for (float value : page.attend(options)) ASSERT_TRUE(std::isfinite(value));
  for (Side side : {Side::kKey, Side::kValue}) {
    const RowFormat& format = scheme.format(side);
    if (!format.lossy) continue;
    const std::vector<float> stored = page.stored(side), read = page.read(side, options);
    double largest = 0;
    for (int row = 0; row < kPageRows; ++row) largest = std::max(largest, norm(stored.data() + row * kDim));
    for (int row = scheme.pins() ? kPinnedRows : 0; row < kPageRows; ++row) {
      double error = 0, clamped = 0;
      for (int i = row * kDim; i < (row + 1) * kDim; ++i) {
        const double difference =
            static_cast<double>(read[static_cast<size_t>(i)]) - stored[static_cast<size_t>(i)];
        ASSERT_TRUE(std::isfinite(difference)) << "row " << row;
        error += difference * difference;
        clamped += std::max(0.0f, std::fabs(stored[static_cast<size_t>(i)]) - 65504);
      }
      EXPECT_LE(std::sqrt(error), share_of(format) * norm(stored.data() + row * kDim) + largest * 0x1p-11 +
                                      kDim * 0x1p-24 + clamped * 8)
          << "row " << row;
    }
  }
}

TEST(Seal, ExtremeRowsGiveFiniteAnswersNearWhatTheyAre) {
  std::vector<KvScheme> schemes;
  for (const RowFormat* format : row_formats()) {
    for (const bool plain : {false, true}) {
      if (format->lossy) schemes.push_back({format, format, DType::kF16, plain});
    }
  }
  for (KvScheme scheme : schemes) {
    for (const Extreme& extreme : extremes()) {
      scheme.raw = extreme.raw;
      std::vector<SealOptions> options = {{true, Isa::kPortable}};
      for (Isa isa : available_isas()) options.push_back({false, isa});
      for (const SealOptions& each : options) {
        SCOPED_TRACE(testing::Message() << scheme.key->name << (scheme.plain ? ":plain " : " ")
                                        << extreme.name << " " << dtype_name(extreme.raw) << " "
                                        << (each.reference ? "reference" : isa_name(each.isa)));
        expect_bounded(scheme, extreme, each);
      }
    }
  }
}

TEST(Seal, PagesNameTheCentreThatTheyWereCodedWith) {
  const std::vector<float> rows = random_floats(3, int64_t{kPageRows} * kDim);
  const RowFormat* format = find_row_format("aura4");
  for (const bool reference : {false, true}) {
    const SealedPage page({format, format, DType::kF16}, rows, {reference, Isa::kPortable});
    for (int head = 0; head < kHeads; ++head) EXPECT_EQ(page.named_centre(head), page.own_centre(head));
    EXPECT_NE(page.named_centre(0), page.named_centre(1));
    const SealedPage plain({format, format, DType::kF16, true}, rows, {reference, Isa::kPortable});
    EXPECT_EQ(plain.named_centre(0), CentreId{});
  }
}

TEST(Seal, WhatIsNotFiniteIsReportedByLayerPositionAndHead) {
  NonFinite found;
  EXPECT_TRUE(found.status());
  found.report(3, 77, 1);
  found.report(3, 76, 2);
  found.report(4, 1, 0);
  ASSERT_FALSE(found.status());
  const std::string message = found.status().error().message();
  EXPECT_NE(message.find("layer 3, KV head 2, position 76"), std::string::npos) << message;
}

}  // namespace
}  // namespace butter
