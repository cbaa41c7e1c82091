// Linear kernels in plain C++, for any CPU. The results of the integer part are those of the other sets, bit
// for bit; float sums have their own order.
#include <cstring>

#include "core/dtype.h"
#include "kernels/cpu/linear_kernels.h"

namespace butter::cpu {
namespace {

template <typename T>
T load(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// --- Codes
// ---------------------------------------------------------------------------------------------------

struct CodeShape {
  int bits;
  int zero;  // the code that stands for 0
  bool bias;
};

constexpr CodeShape shape_of(LinearForm form) {
  if (form == LinearForm::kCodes4) return {4, 8, false};
  if (form == LinearForm::kCodes4Bias) return {4, 0, true};
  return {8, 128, false};
}

// The record of one group, unpacked: [column][lane], so that the lanes of a column are neighbours.
struct Group {
  int16_t codes[kGroup][kPanelRows];
  float scale[kPanelRows];
  float bias[kPanelRows];
};

template <LinearForm form>
void unpack(const uint8_t* record, int lanes, Group& group) {
  constexpr CodeShape kShape = shape_of(form);
  for (int i = 0; i < lanes; ++i) group.scale[i] = fp16_to_float(load<uint16_t>(record + 2 * i));
  record += 2 * lanes;
  if constexpr (kShape.bias) {
    for (int i = 0; i < lanes; ++i) group.bias[i] = fp16_to_float(load<uint16_t>(record + 2 * i));
    record += 2 * lanes;
  }
  for (int q = 0; q < kShape.bits; ++q) {
    for (int i = 0; i < lanes; ++i) {
      for (int b = 0; b < 4; ++b, ++record) {
        if constexpr (kShape.bits == 8) {
          group.codes[4 * q + b][i] = static_cast<int16_t>(*record - kShape.zero);
        } else {
          group.codes[4 * q + b][i] = static_cast<int16_t>((*record & 15) - kShape.zero);
          group.codes[16 + 4 * q + b][i] = static_cast<int16_t>((*record >> 4) - kShape.zero);
        }
      }
    }
  }
}

template <LinearForm form>
void multiply_codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
                    const LinearTarget& target) {
  constexpr CodeShape kShape = shape_of(form);
  constexpr int64_t kRowRecord = 2 + (kShape.bias ? 2 : 0) + kShape.bits * 4;
  const int64_t groups = weight.columns / kGroup;
  Group group = {};
  for (int64_t n = begin; n < end; n += kPanelRows) {
    const int lanes = static_cast<int>(weight.rows - n < kPanelRows ? weight.rows - n : kPanelRows);
    const auto* panel = reinterpret_cast<const uint8_t*>(weight.data) + n * groups * kRowRecord;
    const auto* x = reinterpret_cast<const uint8_t*>(rows.data);
    int64_t done = 0;
    while (done < rows.rows) {
      const int64_t left = rows.rows - done;
      const int64_t block = left < kInt8Block ? left : kInt8Block;
      float sums[kInt8Block][kPanelRows] = {};
      for (int64_t g = 0; g < groups; ++g, x += block * kInt8GroupBytes) {
        unpack<form>(panel + g * lanes * kRowRecord, lanes, group);
        for (int64_t m = 0; m < block; ++m) {
          const auto* codes = reinterpret_cast<const int8_t*>(x + m * kGroup);
          const float scale = load<float>(x + block * kGroup + 4 * m);
          const float code_sum = load<float>(x + block * (kGroup + 4) + 4 * m);
          int dots[kPanelRows] = {};
          for (int k = 0; k < kGroup; ++k) {
            const int code = codes[k];
            for (int i = 0; i < kPanelRows; ++i) dots[i] += code * group.codes[k][i];
          }
          for (int i = 0; i < kPanelRows; ++i) {
            sums[m][i] += static_cast<float>(dots[i]) * (group.scale[i] * scale);
            if constexpr (kShape.bias) sums[m][i] += group.bias[i] * code_sum;
          }
        }
      }
      for (int64_t m = 0; m < block; ++m) {
        float* y = target.y + (done + m) * target.stride + n;
        for (int i = 0; i < lanes; ++i) {
          const float sum = sums[m][i] + (target.bias != nullptr ? target.bias[n + i] : 0.0f);
          y[i] = target.accumulate ? y[i] + target.multiplier * sum : sum;
        }
      }
      done += block;
    }
  }
}

void codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
           const LinearTarget& target) {
  switch (weight.form) {
    case LinearForm::kCodes4:
      return multiply_codes<LinearForm::kCodes4>(weight, rows, begin, end, target);
    case LinearForm::kCodes4Bias:
      return multiply_codes<LinearForm::kCodes4Bias>(weight, rows, begin, end, target);
    case LinearForm::kCodes8:
      return multiply_codes<LinearForm::kCodes8>(weight, rows, begin, end, target);
    default:
      return;
  }
}

// --- Floats
// --------------------------------------------------------------------------------------------------

constexpr int kLanes = 8;

template <LinearForm form>
constexpr int64_t kElementBytes = form == LinearForm::kF32 ? 4 : 2;

template <LinearForm form>
float value_at(const uint8_t* row, int64_t k) {
  if constexpr (form == LinearForm::kF32) return load<float>(row + 4 * k);
  if constexpr (form == LinearForm::kF16) return fp16_to_float(load<uint16_t>(row + 2 * k));
  return bf16_to_float(load<uint16_t>(row + 2 * k));
}

// Eight running sums a result, then their sum in order. Weights are widened a chunk at a time for all input
// rows.
template <LinearForm form>
void multiply_floats(const LinearMatrix& weight, const FloatRows& rows, int64_t begin, int64_t end,
                     const LinearTarget& target) {
  constexpr int64_t kChunk = 512, kRows = 4;
  float chunk[kChunk];
  for (int64_t n = begin; n < end; ++n) {
    const auto* w = reinterpret_cast<const uint8_t*>(weight.data) + n * weight.columns * kElementBytes<form>;
    for (int64_t first = 0; first < rows.rows; first += kRows) {
      const int64_t block = rows.rows - first < kRows ? rows.rows - first : kRows;
      float sums[kRows][kLanes] = {};
      for (int64_t k = 0; k < weight.columns; k += kChunk) {
        const int64_t size = weight.columns - k < kChunk ? weight.columns - k : kChunk;
        for (int64_t i = 0; i < size; ++i) chunk[i] = value_at<form>(w, k + i);
        for (int64_t m = 0; m < block; ++m) {
          const float* x = rows.x + (first + m) * rows.stride + k;
          int64_t i = 0;
          for (; i + kLanes <= size; i += kLanes) {
            for (int lane = 0; lane < kLanes; ++lane) sums[m][lane] += chunk[i + lane] * x[i + lane];
          }
          for (; i < size; ++i) sums[m][i % kLanes] += chunk[i] * x[i];
        }
      }
      for (int64_t m = 0; m < block; ++m) {
        float sum = 0;
        for (float lane : sums[m]) sum += lane;
        if (target.bias != nullptr) sum += target.bias[n];
        float& y = target.y[(first + m) * target.stride + n];
        y = target.accumulate ? y + target.multiplier * sum : sum;
      }
    }
  }
}

void floats(const LinearMatrix& weight, const FloatRows& rows, int64_t begin, int64_t end,
            const LinearTarget& target) {
  switch (weight.form) {
    case LinearForm::kF32:
      return multiply_floats<LinearForm::kF32>(weight, rows, begin, end, target);
    case LinearForm::kF16:
      return multiply_floats<LinearForm::kF16>(weight, rows, begin, end, target);
    case LinearForm::kBF16:
      return multiply_floats<LinearForm::kBF16>(weight, rows, begin, end, target);
    default:
      return;
  }
}

constexpr LinearKernels kKernels = {floats, codes, nullptr, nullptr};

}  // namespace

const LinearKernels& portable_linear_kernels() {
  return kKernels;
}

}  // namespace butter::cpu
