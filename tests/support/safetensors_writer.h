// SafetensorsWriter: writes safetensors files for tests, right ones and deliberately wrong ones.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"

namespace butter {

// A file with this header text, padded with spaces so that the data begins at a multiple of 8 bytes
// unless `pad` says otherwise.
inline std::string safetensors_bytes(std::string header, std::string_view data, bool pad = true) {
  while (pad && header.size() % 8 != 0) header += ' ';
  return FileBytes().number<uint64_t>(header.size()).raw(header).raw(data).bytes();
}

class SafetensorsWriter {
 public:
  struct Part {
    std::string name;  // written into the JSON as it is
    std::string dtype;
    std::vector<int64_t> dims;
    std::string data;
  };

  SafetensorsWriter& tensor(std::string_view name, std::string_view dtype, const std::vector<int64_t>& dims,
                            std::string_view data) {
    parts_.push_back({std::string(name), std::string(dtype), dims, std::string(data)});
    return *this;
  }
  // F32, F16 or BF16.
  SafetensorsWriter& floats(std::string_view name, DType dtype, const Shape& shape,
                            std::span<const float> values) {
    BUTTER_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
    std::vector<int64_t> dims;
    for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
    return tensor(name, dtype_name(dtype), dims, encode_floats(dtype, values));
  }

  const std::vector<Part>& parts() const { return parts_; }
  std::string bytes() const { return whole(true); }
  // As MLX writes files: data begin where the header ends.
  std::string bytes_unpadded() const { return whole(false); }
  void write(const std::string& path) const { write_test_file(path, bytes()); }

 private:
  std::string whole(bool pad) const {
    std::string header, data;
    for (const Part& part : parts_) {
      const size_t begin = data.size();
      data += part.data;
      header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                            header.empty() ? "" : ",", part.name, part.dtype, fmt::join(part.dims, ","),
                            begin, data.size());
    }
    return safetensors_bytes(fmt::format("{{{}}}", header), data, pad);
  }

  std::vector<Part> parts_;
};

}  // namespace butter
