// GgufWriter: writes GGUF files for tests, right ones and deliberately wrong ones.
//
// Keys and tensors are written in the order in which they were added. Whatever the writer would work out
// itself (magic, version, counts, offsets) can be set to something else.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/dtype.h"
#include "core/tensor_view.h"

namespace butter {

// Bytes of a file, appended to little-endian.
class FileBytes {
 public:
  template <typename T>
  FileBytes& number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const char* bytes = reinterpret_cast<const char*>(&value);
    bytes_.append(bytes, sizeof value);
    return *this;
  }
  FileBytes& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  // As GGUF writes one: its length, then its bytes.
  FileBytes& string(std::string_view text) { return number<uint64_t>(text.size()).raw(text); }
  FileBytes& pad_to(size_t multiple) {
    bytes_.resize((bytes_.size() + multiple - 1) / multiple * multiple);
    return *this;
  }
  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline void write_test_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  BUTTER_CHECK(file.good());
}

// --- Quantisers: plain, to the nearest code; `values` is a whole number of blocks ------------------

template <typename PackBlock>
std::string pack_blocks(std::span<const float> values, PackBlock pack) {
  BUTTER_CHECK(values.size() % 32 == 0);
  FileBytes out;
  for (size_t at = 0; at < values.size(); at += 32) pack(values.subspan(at, 32), out);
  return out.bytes();
}

// Codes 0..15 of 32 elements as 16 bytes: element j low, element j + 16 high.
inline void append_nibbles(std::span<const float> codes, FileBytes& out) {
  const auto code = [&](size_t i) {
    return static_cast<unsigned>(std::clamp(std::nearbyint(codes[i]), 0.0f, 15.0f));
  };
  for (size_t j = 0; j < 16; ++j) out.number(static_cast<uint8_t>(code(j) | code(j + 16) << 4));
}

inline std::string quantise_q4_0(std::span<const float> values) {
  return pack_blocks(values, [](std::span<const float> block, FileBytes& out) {
    const auto far = [](float a, float b) { return std::abs(a) < std::abs(b); };
    const float scale = *std::max_element(block.begin(), block.end(), far) / -8;
    const uint16_t stored = float_to_fp16(scale);
    const float used = fp16_to_float(stored);
    std::array<float, 32> codes;
    for (size_t i = 0; i < 32; ++i) codes[i] = used == 0 ? 8 : block[i] / used + 8;
    out.number(stored);
    append_nibbles(codes, out);
  });
}

inline std::string quantise_q4_1(std::span<const float> values) {
  return pack_blocks(values, [](std::span<const float> block, FileBytes& out) {
    const auto [least, most] = std::minmax_element(block.begin(), block.end());
    const uint16_t scale = float_to_fp16((*most - *least) / 15);
    const uint16_t minimum = float_to_fp16(*least);
    const float used = fp16_to_float(scale);
    std::array<float, 32> codes;
    for (size_t i = 0; i < 32; ++i) codes[i] = used == 0 ? 0 : (block[i] - fp16_to_float(minimum)) / used;
    out.number(scale).number(minimum);
    append_nibbles(codes, out);
  });
}

inline std::string quantise_q8_0(std::span<const float> values) {
  return pack_blocks(values, [](std::span<const float> block, FileBytes& out) {
    float most = 0;
    for (float value : block) most = std::max(most, std::abs(value));
    const uint16_t scale = float_to_fp16(most / 127);
    const float used = fp16_to_float(scale);
    out.number(scale);
    for (float value : block) {
      const float code = used == 0 ? 0 : std::clamp(std::nearbyint(value / used), -127.0f, 127.0f);
      out.number(static_cast<int8_t>(code));
    }
  });
}

// `values` as the bytes of F32, F16, BF16, Q4_0, Q4_1 or Q8_0.
inline std::string encode_floats(DType dtype, std::span<const float> values) {
  FileBytes out;
  switch (dtype) {
    case DType::kQ4_0:
      return quantise_q4_0(values);
    case DType::kQ4_1:
      return quantise_q4_1(values);
    case DType::kQ8_0:
      return quantise_q8_0(values);
    case DType::kF32:
      for (float value : values) out.number(value);
      return out.bytes();
    case DType::kF16:
      for (float value : values) out.number(float_to_fp16(value));
      return out.bytes();
    case DType::kBF16:
      for (float value : values) out.number(float_to_bf16(value));
      return out.bytes();
    default:
      BUTTER_CHECK(false && "no quantiser for this type");
  }
  return {};
}

// --- The file -------------------------------------------------------------------------------------

// The ids of value types. kGgufU32 and so on are what a C++ type is written as.
enum GgufValueType : uint32_t {
  kGgufU8 = 0,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64,
};

template <typename T>
constexpr uint32_t gguf_value_type() {
  if constexpr (std::is_same_v<T, bool>) return kGgufBool;
  if constexpr (std::is_same_v<T, uint8_t>) return kGgufU8;
  if constexpr (std::is_same_v<T, int8_t>) return kGgufI8;
  if constexpr (std::is_same_v<T, uint16_t>) return kGgufU16;
  if constexpr (std::is_same_v<T, int16_t>) return kGgufI16;
  if constexpr (std::is_same_v<T, uint32_t>) return kGgufU32;
  if constexpr (std::is_same_v<T, int32_t>) return kGgufI32;
  if constexpr (std::is_same_v<T, uint64_t>) return kGgufU64;
  if constexpr (std::is_same_v<T, int64_t>) return kGgufI64;
  if constexpr (std::is_same_v<T, float>) return kGgufF32;
  if constexpr (std::is_same_v<T, double>) return kGgufF64;
}

// The id of a tensor type.
inline uint32_t gguf_tensor_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kMXFP4:
      return 39;
    case DType::kI8:
      return 24;
    case DType::kI32:
      return 26;
    case DType::kU8:
    case DType::kU32:
    case DType::kMLX:
      break;
  }
  BUTTER_CHECK(false && "GGUF has no such type");
  return 0;
}

class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // as the file has them: fastest first
    uint32_t type;
    std::string data;
    std::optional<uint64_t> offset;  // in place of the next free one
  };

  // What a wrong file gets wrong.
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> key_count;

  // The alignment that offsets are laid out with and, if it is not 32, that the metadata names.
  GgufWriter& alignment(uint32_t bytes) {
    alignment_ = bytes;
    return value<uint32_t>("general.alignment", bytes);
  }

  template <typename T>
  GgufWriter& value(std::string_view key, T number) {
    begin_key(key, gguf_value_type<T>()).number(number);
    return *this;
  }
  GgufWriter& string(std::string_view key, std::string_view text) {
    begin_key(key, kGgufString).string(text);
    return *this;
  }
  template <typename T>
  GgufWriter& numbers(std::string_view key, const std::vector<T>& items) {
    FileBytes& out =
        begin_key(key, kGgufArray).number(gguf_value_type<T>()).template number<uint64_t>(items.size());
    for (const T item : items) out.number(item);
    return *this;
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& items) {
    FileBytes& out = begin_key(key, kGgufArray).number<uint32_t>(kGgufString).number<uint64_t>(items.size());
    for (const std::string& item : items) out.string(item);
    return *this;
  }
  // A key of any type whose value is these bytes: nested arrays, wrong types, wrong lengths.
  GgufWriter& raw_value(std::string_view key, uint32_t type, std::string_view bytes) {
    begin_key(key, type).raw(bytes);
    return *this;
  }

  GgufWriter& tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // `shape` is (out, in), as TensorView has it.
  GgufWriter& tensor(std::string name, DType dtype, const Shape& shape, std::string data) {
    std::vector<uint64_t> dims;
    for (int i = shape.rank(); i > 0; --i) dims.push_back(static_cast<uint64_t>(shape[i - 1]));
    return tensor({std::move(name), std::move(dims), gguf_tensor_type(dtype), std::move(data), {}});
  }
  GgufWriter& floats(std::string name, DType dtype, const Shape& shape, std::span<const float> values) {
    BUTTER_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
    return tensor(std::move(name), dtype, shape, encode_floats(dtype, values));
  }

  std::string bytes() const {
    FileBytes out;
    out.raw(magic).number(version);
    out.number<uint64_t>(tensor_count.value_or(tensors_.size())).number<uint64_t>(key_count.value_or(keys_));
    out.raw(metadata_.bytes());
    FileBytes data;
    for (const Tensor& tensor : tensors_) {
      out.string(tensor.name).number(static_cast<uint32_t>(tensor.dims.size()));
      for (uint64_t dim : tensor.dims) out.number(dim);
      out.number(tensor.type).number<uint64_t>(tensor.offset.value_or(data.size()));
      data.raw(tensor.data).pad_to(alignment_);
    }
    if (!tensors_.empty()) out.pad_to(alignment_);
    return out.raw(data.bytes()).bytes();
  }
  void write(const std::string& path) const { write_test_file(path, bytes()); }

 private:
  FileBytes& begin_key(std::string_view key, uint32_t type) {
    ++keys_;
    return metadata_.string(key).number(type);
  }

  FileBytes metadata_;
  uint64_t keys_ = 0;
  uint32_t alignment_ = 32;
  std::vector<Tensor> tensors_;
};

}  // namespace butter
