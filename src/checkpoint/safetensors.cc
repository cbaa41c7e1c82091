#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "checkpoint/printable.h"

namespace butter {
namespace {

// The format's own bound on the header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// About eight values a tensor: a quarter of a million tensors.
constexpr Attributes::JsonLimits kHeaderLimits{
    .max_bytes = kMaxHeaderBytes, .max_depth = 8, .max_values = 1 << 21};
constexpr std::string_view kMetadata = "__metadata__";

struct FileDType {
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> dtype;  // none: its size is known, and no more
};

const FileDType* file_dtype(std::string_view name) {
  static constexpr std::array<FileDType, 16> kTypes = {{
      {"F32", 4, DType::kF32},
      {"F16", 2, DType::kF16},
      {"BF16", 2, DType::kBF16},
      {"I32", 4, DType::kI32},
      {"I8", 1, DType::kI8},
      {"U8", 1, DType::kU8},
      {"BOOL", 1, std::nullopt},
      {"I16", 2, std::nullopt},
      {"U16", 2, std::nullopt},
      {"U32", 4, DType::kU32},
      {"I64", 8, std::nullopt},
      {"U64", 8, std::nullopt},
      {"F64", 8, std::nullopt},
      {"F8_E4M3", 1, std::nullopt},
      {"F8_E5M2", 1, std::nullopt},
      {"F8_E8M0", 1, std::nullopt},
  }};
  for (const FileDType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

Result<std::string_view> header_text(std::span<const std::byte> file) {
  uint64_t bytes;
  if (file.size() < sizeof bytes) {
    return fail(StatusCode::kCorrupt, "the file has {} bytes; the header's length alone takes 8",
                file.size());
  }
  std::memcpy(&bytes, file.data(), sizeof bytes);
  const uint64_t most = std::min<uint64_t>(file.size() - sizeof bytes, kMaxHeaderBytes);
  if (bytes > most) {
    return fail(StatusCode::kCorrupt,
                "the header's length is {}; at most {} is expected in a file of {} bytes", bytes, most,
                file.size());
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + sizeof bytes, bytes);
}

// Where the tensor's bytes are, held against the data section.
Status read_place(const Attributes& fields, const std::string& name, uint64_t data_bytes,
                  TensorEntry& entry) {
  BUTTER_ASSIGN(const std::vector<int64_t> offsets, fields.get_ints("data_offsets"));
  if (offsets.size() != 2)
    return fail(StatusCode::kCorrupt, "{} has {} data_offsets; 2 are expected", name, offsets.size());
  if (offsets[0] < 0 || offsets[1] < offsets[0] || static_cast<uint64_t>(offsets[1]) > data_bytes) {
    return fail(StatusCode::kCorrupt, "{} has the data_offsets [{}, {}]; the data has {} bytes", name,
                offsets[0], offsets[1], data_bytes);
  }
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.bytes = static_cast<uint64_t>(offsets[1]) - entry.begin;
  return {};
}

Result<uint64_t> count_elements(const std::vector<int64_t>& dims, const std::string& name) {
  uint64_t elements = 1;
  for (int64_t dim : dims) {
    if (dim < 0) return fail(StatusCode::kCorrupt, "{} has the dimension {}", name, dim);
    if (!multiply(elements, static_cast<uint64_t>(dim), elements) ||
        elements > std::numeric_limits<int64_t>::max())
      return fail(StatusCode::kCorrupt, "{} has more than 2^63 elements", name);
  }
  return elements;
}

// Why Butter cannot read the tensor, or nothing.
std::string why_unreadable(std::string_view dtype_text, const FileDType* dtype, size_t rank,
                           uint64_t elements) {
  if (!dtype || !dtype->dtype) {
    return fmt::format("is stored as {}; F32, F16 or BF16 is expected", printable(dtype_text));
  }
  if (rank > Shape::kMaxRank)
    return fmt::format("has {} dimensions; at most {} are read", rank, Shape::kMaxRank);
  return elements == 0 ? "has no elements" : "";
}

Result<TensorEntry> read_tensor(const Attributes& header, std::string_view name,
                                std::span<const std::byte> data) {
  const std::string shown = printable(name);
  BUTTER_ASSIGN(const Attributes fields, header.get_object(name));
  BUTTER_ASSIGN(const std::string_view dtype_text, fields.get_string("dtype"));
  BUTTER_ASSIGN(const std::vector<int64_t> dims, fields.get_ints("shape"));
  BUTTER_ASSIGN(const uint64_t elements, count_elements(dims, shown));
  TensorEntry entry;
  entry.name = name;
  BUTTER_TRY(read_place(fields, shown, data.size(), entry));

  const FileDType* dtype = file_dtype(dtype_text);
  uint64_t expected_bytes = 0;
  if (dtype && (!multiply(elements, dtype->bytes, expected_bytes) || expected_bytes != entry.bytes)) {
    return fail(StatusCode::kCorrupt, "{} has {} bytes; {} elements of {} take {}", shown, entry.bytes,
                elements, dtype->name, expected_bytes);
  }
  entry.unreadable = why_unreadable(dtype_text, dtype, dims.size(), elements);
  if (!entry.unreadable.empty()) return entry;
  entry.view.dtype = *dtype->dtype;
  for (int64_t dim : dims) entry.view.shape.append(dim);
  entry.view.data = data.data() + entry.begin;
  return entry;
}

// With overlaps ruled out already: the data is all used.
Status check_covered(std::span<const TensorEntry> entries, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != end) {
      return fail(StatusCode::kCorrupt,
                  "{} begins at byte {} of the data; byte {}, where the one before it ends, is expected",
                  printable(entry.name), entry.begin, end);
    }
    end = entry.begin + entry.bytes;
  }
  if (end == data_bytes) return {};
  return fail(StatusCode::kCorrupt, "the tensors end at byte {} of the data, which has {} bytes", end,
              data_bytes);
}

}  // namespace

Result<TensorView> readable_tensor(const TensorTable& table, std::string_view name, std::string_view file) {
  const TensorEntry* entry = table.find(name);
  if (!entry)
    return fail(StatusCode::kNotFound, "{} is missing from {}", printable(name), printable(file, 500));
  if (!entry->unreadable.empty())
    return fail(StatusCode::kUnsupported, "{} {}", printable(name), entry->unreadable);
  return entry->view;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  BUTTER_ASSIGN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
  auto parsed = parse(file->bytes(), file);
  if (!parsed) return fail(parsed.error().within(printable(path, 500)));
  return parsed;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> file,
                                               std::shared_ptr<const void> owner) {
  BUTTER_ASSIGN(const std::string_view text, header_text(file));
  SafetensorsFile parsed;
  parsed.owner_ = std::move(owner);
  BUTTER_ASSIGN(parsed.header_, Attributes::parse_json(text, "the safetensors header", kHeaderLimits));
  BUTTER_ASSIGN(parsed.metadata_, parsed.header_.get_object_or_empty(kMetadata));

  const std::span<const std::byte> data = file.subspan(sizeof(uint64_t) + text.size());
  std::vector<TensorEntry> entries;
  for (std::string_view name : parsed.header_.keys()) {
    if (name == kMetadata) continue;
    BUTTER_ASSIGN(TensorEntry entry, read_tensor(parsed.header_, name, data));
    entries.push_back(std::move(entry));
  }
  BUTTER_ASSIGN(parsed.tensors_, TensorTable::create(std::move(entries)));
  BUTTER_TRY(check_covered(parsed.tensors_.entries(), data.size()));
  return parsed;
}

Result<TensorView> SafetensorsFile::tensor(std::string_view name) const {
  return readable_tensor(tensors_, name, "the safetensors file");
}

}  // namespace butter
