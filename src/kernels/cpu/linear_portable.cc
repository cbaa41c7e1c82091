// Linear kernels in plain C++, for any CPU. The results of the integer part are those of the other sets, bit
// for bit; float sums have their own order.
#include <cstring>

#include "core/dtype.h"
#include "core/quant_levels.h"
#include "kernels/cpu/linear_kernels.h"

namespace butter::cpu {
namespace {

template <typename T>
T load(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// --- Codes -----------------------------------------------------------------------------------------------

struct CodeShape {
  int groups;  // of 32 columns in a record
  int row_bytes;
  bool bias;
  bool halves = false;  // a scale, and a bias, for each 16 columns
};

constexpr CodeShape shape_of(LinearForm form) {
  switch (form) {
    case LinearForm::kCodes4:
      return {1, 18, false};
    case LinearForm::kCodes4Bias:
      return {1, 20, true};
    case LinearForm::kCodes4Super:
      return {8, 144, true};
    case LinearForm::kCodes6Super:
      return {8, 210, false, true};
    case LinearForm::kCodes5:
      return {1, 22, false};
    case LinearForm::kCodes5Bias:
      return {1, 24, true};
    case LinearForm::kCodes5Super:
      return {8, 176, true};
    case LinearForm::kCodes2Super:
      return {8, 84, true, true};
    case LinearForm::kCodes3Super:
      return {8, 110, false, true};
    case LinearForm::kLevels:
      return {1, 18, false};
    case LinearForm::kLevelsSuper:
      return {8, 136, false};
    case LinearForm::kLevelsFp4:
      return {1, 17, false};
    case LinearForm::kAffine2:
    case LinearForm::kAffine3:
    case LinearForm::kAffine4:
    case LinearForm::kAffine5:
    case LinearForm::kAffine6:
    case LinearForm::kAffine8:
      return {0, 0, true};  // the weight's
    default:
      return {1, 34, false};
  }
}

using byte_t = uint8_t;

template <LinearForm form>
struct Codes {
  static constexpr int kGroups = shape_of(form).groups, kRowBytes = shape_of(form).row_bytes;
};

#include "kernels/cpu/linear_panel_inl.h"

// One group of a panel, unpacked: [column][lane], so that the lanes of a column are neighbours. Codes are
// less their zero point; each half of the columns has a scale.
struct Group {
  int16_t codes[kGroup][kPanelRows];
  float scale[2][kPanelRows];
  float bias[2][kPanelRows];  // the second where the form has halves
};

void unpack_4(const uint8_t* codes, int lanes, int zero, Group& group) {
  for (int q = 0; q < 4; ++q) {
    for (int i = 0; i < lanes; ++i) {
      for (int b = 0; b < 4; ++b, ++codes) {
        group.codes[4 * q + b][i] = static_cast<int16_t>((*codes & 15) - zero);
        group.codes[16 + 4 * q + b][i] = static_cast<int16_t>((*codes >> 4) - zero);
      }
    }
  }
}

void unpack_8(const uint8_t* codes, int lanes, Group& group) {
  for (int q = 0; q < 8; ++q) {
    for (int i = 0; i < lanes; ++i) {
      for (int b = 0; b < 4; ++b, ++codes) group.codes[4 * q + b][i] = static_cast<int16_t>(*codes - 128);
    }
  }
}

// Scales and minima of sub-block j: core/dequantise.cc has the bits. Runs of codes begin at byte `first_run`
// of a row's block.
void unpack_4_super(const uint8_t* record, int j, int lanes, int first_run, Group& group) {
  const uint8_t* packed = record + 4 * lanes;
  for (int i = 0; i < lanes; ++i) {
    const auto plane = [&](int at) { return static_cast<int>(packed[at * lanes + i]); };
    const int scale = j < 4 ? plane(j) & 63 : (plane(j + 4) & 15) | (plane(j - 4) >> 6) << 4;
    const int minimum = j < 4 ? plane(j + 4) & 63 : (plane(j + 4) >> 4) | (plane(j) >> 6) << 4;
    group.scale[0][i] *= static_cast<float>(scale);
    group.scale[1][i] = group.scale[0][i];
    group.bias[0][i] *= -static_cast<float>(minimum);
  }
  const uint8_t* codes = record + (first_run + j / 2 * 32) * lanes;
  for (int q = 0; q < 8; ++q) {
    for (int i = 0; i < lanes; ++i) {
      for (int b = 0; b < 4; ++b, ++codes)
        group.codes[4 * q + b][i] = static_cast<int16_t>(*codes >> (j % 2 * 4) & 15);
    }
  }
}

void unpack_6_super(const uint8_t* record, int j, int lanes, Group& group) {
  const uint8_t* scales = record + (2 + 2 * j) * lanes;
  for (int i = 0; i < lanes; ++i) {
    const float unit = group.scale[0][i];
    group.scale[0][i] = unit * static_cast<float>(static_cast<int8_t>(scales[i]));
    group.scale[1][i] = unit * static_cast<float>(static_cast<int8_t>(scales[lanes + i]));
  }
  const int half = j / 4, run = j % 4;
  const uint8_t* bottom = record + (18 + (half * 2 + run % 2) * 32) * lanes;
  const uint8_t* top = record + (18 + 128 + half * 32) * lanes;
  for (int q = 0; q < 8; ++q) {
    for (int i = 0; i < lanes; ++i) {
      for (int b = 0; b < 4; ++b, ++bottom, ++top) {
        const int code = (*bottom >> (run / 2 * 4) & 15) | (*top >> (run * 2) & 3) << 4;
        group.codes[4 * q + b][i] = static_cast<int16_t>(code - 32);
      }
    }
  }
}

// Adds 16 to the codes whose bit is set: bit k of a lane's dword is column k's.
void add_fifth_bits(const uint8_t* dwords, int lanes, Group& group) {
  for (int i = 0; i < lanes; ++i) {
    const auto bits = load<uint32_t>(dwords + 4 * i);
    for (int k = 0; k < kGroup; ++k) {
      const uint32_t top = (bits >> k & 1u) << 4;
      group.codes[k][i] = static_cast<int16_t>(group.codes[k][i] + static_cast<int>(top));
    }
  }
}

// Puts fields of `width` bits of 32 columns in at bit `to` of the codes; a plane has those of 8 / width
// quads, lowest first.
void put_fields(const uint8_t* planes, int width, int to, int lanes, Group& group) {
  const int quads = 8 / width;
  for (int k = 0; k < kGroup; ++k) {
    const uint8_t* plane = planes + k / 4 / quads * 4 * lanes;
    for (int i = 0; i < lanes; ++i) {
      const int field = plane[4 * i + k % 4] >> (k / 4 % quads * width) & ((1 << width) - 1);
      group.codes[k][i] = static_cast<int16_t>(group.codes[k][i] | field << to);
    }
  }
}

// Two bits of a code: run j % 4 of the half's 32 bytes.
void unpack_2(const uint8_t* codes, int j, int lanes, int zero, Group& group) {
  for (int q = 0; q < 8; ++q) {
    for (int i = 0; i < lanes; ++i) {
      for (int b = 0; b < 4; ++b, ++codes)
        group.codes[4 * q + b][i] = static_cast<int16_t>((*codes >> (j % 4 * 2) & 3) - zero);
    }
  }
}

void unpack_2_super(const uint8_t* record, int j, int lanes, Group& group) {
  for (int i = 0; i < lanes; ++i) {
    const float unit = group.scale[0][i], minimum_unit = group.bias[0][i];
    for (int half = 0; half < 2; ++half) {
      const int pair = record[(4 + 2 * j + half) * lanes + i];
      group.scale[half][i] = unit * static_cast<float>(pair & 15);
      group.bias[half][i] = minimum_unit * -static_cast<float>(pair >> 4);
    }
  }
  unpack_2(record + (20 + j / 4 * 32) * lanes, j, lanes, 0, group);
}

void unpack_3_super(const uint8_t* record, int j, int lanes, Group& group) {
  const uint8_t* packed = record + 2 * lanes;
  for (int i = 0; i < lanes; ++i) {
    const float unit = group.scale[0][i];
    const auto plane = [&](int at) { return static_cast<int>(packed[at * lanes + i]); };
    for (int half = 0; half < 2; ++half) {
      const int s = 2 * j + half;
      const int bottom = plane(s % 8) >> (s / 8 * 4) & 15, top = plane(8 + s % 4) >> (s / 4 * 2) & 3;
      group.scale[half][i] = unit * static_cast<float>((bottom | top << 4) - 32);
    }
  }
  unpack_2(record + (46 + j / 4 * 32) * lanes, j, lanes, 0, group);
  put_fields(record + (14 + 4 * j) * lanes, 1, 2, lanes, group);
  for (auto& column : group.codes) {
    for (int i = 0; i < lanes; ++i) column[i] = static_cast<int16_t>(column[i] - 4);
  }
}

void unpack_levels(const uint8_t* codes, int lanes, const int8_t (&levels)[16], Group& group) {
  unpack_4(codes, lanes, 0, group);
  for (auto& column : group.codes) {
    for (int i = 0; i < lanes; ++i) column[i] = levels[column[i]];
  }
}

void unpack_levels_super(const uint8_t* record, int j, int lanes, Group& group) {
  for (int i = 0; i < lanes; ++i) {
    const int high = load<uint16_t>(record + 2 * (lanes + i));
    const int low = record[(4 + j / 2) * lanes + i];
    const int scale = ((low >> (j % 2 * 4) & 15) | (high >> (2 * j) & 3) << 4) - 32;
    group.scale[0][i] *= static_cast<float>(scale);
    group.scale[1][i] = group.scale[0][i];
  }
  unpack_levels(record + (8 + 16 * j) * lanes, lanes, kIq4Levels, group);
}

// Scales are 2^(exponent − 128); the smallest two are subnormal.
void unpack_fp4(const uint8_t* record, int lanes, Group& group) {
  for (int i = 0; i < lanes; ++i) {
    const uint32_t exponent = record[i];
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
    group.scale[0][i] = group.scale[1][i] = load<float>(&bits);
  }
  unpack_levels(record + lanes, lanes, kFp4Levels, group);
}

float scale_at(const uint8_t* scales, ScaleType type, int lane) {
  if (type == ScaleType::kF32) return load<float>(scales + 4 * lane);
  const auto bits = load<uint16_t>(scales + 2 * lane);
  return type == ScaleType::kF16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

template <int bits>
void unpack_affine(const uint8_t* record, int j, ScaleType scales, int lanes, Group& group) {
  const int scale_row = scale_bytes(scales) * lanes;
  for (int i = 0; i < lanes; ++i) {
    group.scale[0][i] = group.scale[1][i] = scale_at(record, scales, i);
    group.bias[0][i] = scale_at(record + scale_row, scales, i);
  }
  const uint8_t* codes = record + 2 * scale_row + j * 4 * bits * lanes;
  for (auto& column : group.codes) std::memset(column, 0, sizeof column);
  if constexpr (bits == 8) {
    put_fields(codes, 8, 0, lanes, group);
  } else if constexpr (bits >= 4) {
    unpack_4(codes, lanes, 0, group);
  } else {
    put_fields(codes, 2, 0, lanes, group);
  }
  if constexpr (bits == 6) put_fields(codes + 16 * lanes, 2, 4, lanes, group);
  if constexpr (bits % 2 == 1) put_fields(codes + 4 * (bits - 1) * lanes, 1, bits - 1, lanes, group);
}

template <LinearForm form>
void unpack(const uint8_t* record, int j, ScaleType scales, int lanes, Group& group) {
  if constexpr (form == LinearForm::kLevelsFp4) return unpack_fp4(record, lanes, group);
  if constexpr (kIsAffine<form>) return unpack_affine<kAffineBits<form>>(record, j, scales, lanes, group);
  constexpr bool kBias = shape_of(form).bias;
  for (int i = 0; i < lanes; ++i) {
    group.scale[0][i] = group.scale[1][i] = fp16_to_float(load<uint16_t>(record + 2 * i));
    if constexpr (kBias) group.bias[0][i] = fp16_to_float(load<uint16_t>(record + 2 * (lanes + i)));
  }
  const uint8_t* codes = record + (kBias ? 4 : 2) * lanes;
  if constexpr (form == LinearForm::kCodes4) unpack_4(codes, lanes, 8, group);
  if constexpr (form == LinearForm::kCodes4Bias) unpack_4(codes, lanes, 0, group);
  if constexpr (form == LinearForm::kCodes8) unpack_8(codes, lanes, group);
  if constexpr (form == LinearForm::kCodes4Super) unpack_4_super(record, j, lanes, 16, group);
  if constexpr (form == LinearForm::kCodes6Super) unpack_6_super(record, j, lanes, group);
  if constexpr (form == LinearForm::kCodes5 || form == LinearForm::kCodes5Bias) {
    unpack_4(codes + 4 * lanes, lanes, kBias ? 0 : 16, group);
    add_fifth_bits(codes, lanes, group);
  }
  if constexpr (form == LinearForm::kCodes5Super) {
    unpack_4_super(record, j, lanes, 48, group);
    put_fields(record + (16 + 4 * j) * lanes, 1, 4, lanes, group);
  }
  if constexpr (form == LinearForm::kCodes2Super) unpack_2_super(record, j, lanes, group);
  if constexpr (form == LinearForm::kCodes3Super) unpack_3_super(record, j, lanes, group);
  if constexpr (form == LinearForm::kLevels) unpack_levels(codes, lanes, kIq4Levels, group);
  if constexpr (form == LinearForm::kLevelsSuper) unpack_levels_super(record, j, lanes, group);
}

// What one group adds to the 16 sums of input row m of a block.
template <bool bias, bool halves>
void add_group(const Group& group, const uint8_t* x, int64_t block, int64_t m, float* sums) {
  const auto* codes = reinterpret_cast<const int8_t*>(x + m * kGroup);
  const auto scale = load<float>(x + block * kGroup + 4 * m);
  const auto code_sum = load<float>(x + block * (kGroup + 4) + 4 * m);
  for (int half = 0; half < 2; ++half) {
    int dots[kPanelRows] = {};
    for (int k = half * 16; k < half * 16 + 16; ++k) {
      const int code = codes[k];
      for (int i = 0; i < kPanelRows; ++i) dots[i] += code * group.codes[k][i];
    }
    for (int i = 0; i < kPanelRows; ++i)
      sums[i] += static_cast<float>(dots[i]) * (group.scale[half][i] * scale);
    if constexpr (bias && halves) {
      int sum = 0;
      for (int k = half * 16; k < half * 16 + 16; ++k) sum += codes[k];
      for (int i = 0; i < kPanelRows; ++i) sums[i] += group.bias[half][i] * (scale * static_cast<float>(sum));
    }
  }
  if constexpr (bias && !halves) {
    for (int i = 0; i < kPanelRows; ++i) sums[i] += group.bias[0][i] * code_sum;
  }
}

template <LinearForm form>
void multiply_codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
                    const LinearTarget& target) {
  constexpr CodeShape kShape = shape_of(form);
  Group group = {};
  for (int64_t n = begin; n < end; n += kPanelRows) {
    const int lanes = static_cast<int>(weight.rows - n < kPanelRows ? weight.rows - n : kPanelRows);
    const Panel<form> panel(weight, n);
    const auto* x = reinterpret_cast<const uint8_t*>(rows.data);
    for (int64_t done = 0; done < rows.rows; done += kInt8Block) {
      const int64_t block = rows.rows - done < kInt8Block ? rows.rows - done : kInt8Block;
      float sums[kInt8Block][kPanelRows] = {};
      const uint8_t* record = panel.data;
      for (int64_t g = 0; g < panel.groups; ++g, x += block * kInt8GroupBytes) {
        const int j = static_cast<int>(g % panel.record_groups());
        if (j == 0 && g > 0) record += panel.row_bytes() * lanes;
        unpack<form>(record, j, panel.scales, lanes, group);
        for (int64_t m = 0; m < block; ++m)
          add_group<kShape.bias, kShape.halves>(group, x, block, m, sums[m]);
      }
      for (int64_t m = 0; m < block; m += kCodeRows) {
        float* y = target.y + (done + m) / kCodeRows * target.stride + n;
        for (int i = 0; i < lanes; ++i) {
          const float sum =
              sums[m][i] + sums[m + 1][i] + (target.bias != nullptr ? target.bias[n + i] : 0.0f);
          y[i] = target.accumulate ? y[i] + target.multiplier * sum : sum;
        }
      }
    }
  }
}

// --- Floats ----------------------------------------------------------------------------------------------

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

#include "kernels/cpu/linear_forms_inl.h"

constexpr LinearKernels kKernels = {floats, codes, nullptr, nullptr};

}  // namespace

const LinearKernels& portable_linear_kernels() {
  return kKernels;
}

}  // namespace butter::cpu
