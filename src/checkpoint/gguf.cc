#include "checkpoint/gguf.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "checkpoint/attribute_value.h"
#include "checkpoint/printable.h"

namespace butter {
namespace {

static_assert(std::endian::native == std::endian::little, "the files' numbers are read as they lie");

// Far above any model that exists, and low enough that a hostile header costs little memory.
constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxStrings = uint64_t{1} << 24;  // in one file's arrays
constexpr uint64_t kMaxNestedArrays = uint64_t{1} << 20;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kDefaultAlignment = 32;

// The least bytes that a key and a tensor take: what the counts are held against.
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

constexpr uint32_t kTypeString = 8;
constexpr uint32_t kTypeArray = 9;

std::optional<NumberType> number_type(uint32_t type) {
  switch (type) {
    case 0:
      return NumberType::kU8;
    case 1:
      return NumberType::kI8;
    case 2:
      return NumberType::kU16;
    case 3:
      return NumberType::kI16;
    case 4:
      return NumberType::kU32;
    case 5:
      return NumberType::kI32;
    case 6:
      return NumberType::kF32;
    case 7:
      return NumberType::kBool;
    case 10:
      return NumberType::kU64;
    case 11:
      return NumberType::kI64;
    case 12:
      return NumberType::kF64;
    default:
      return std::nullopt;
  }
}

struct TensorType {
  uint32_t id;
  const char* name;
  std::optional<DType> dtype;  // none: known by name only
};

constexpr std::array<TensorType, 34> kTensorTypes = {{
    {0, "F32", DType::kF32},        {1, "F16", DType::kF16},       {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},      {6, "Q5_0", DType::kQ5_0},     {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},      {9, "Q8_1", std::nullopt},     {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},     {12, "Q4_K", DType::kQ4_K},    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},     {15, "Q8_K", std::nullopt},    {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt},   {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", DType::kIQ4_NL}, {21, "IQ3_S", std::nullopt},   {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", DType::kIQ4_XS}, {24, "I8", DType::kI8},        {25, "I16", std::nullopt},
    {26, "I32", DType::kI32},       {27, "I64", std::nullopt},     {28, "F64", std::nullopt},
    {29, "IQ1_M", std::nullopt},    {30, "BF16", DType::kBF16},    {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},    {39, "MXFP4", DType::kMXFP4},  {40, "NVFP4", std::nullopt},
    {41, "Q1_0", std::nullopt},
}};

const TensorType* tensor_type(uint32_t id) {
  for (const TensorType& type : kTensorTypes)
    if (type.id == id) return &type;
  return nullptr;
}

// "F32, F16, Q4_0", for the sentence about a type that is not among them.
std::string readable_types() {
  std::string names;
  for (const TensorType& type : kTensorTypes) {
    if (type.dtype) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  }
  return names;
}

// Walks the header. Every read is held against what is left; `what` names the thing in the error.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  uint64_t position() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }

  template <typename T>
  Result<T> number(std::string_view what) {
    BUTTER_ASSIGN(const std::byte* at, take(sizeof(T), what));
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  Result<const std::byte*> take(uint64_t bytes, std::string_view what) {
    if (bytes > left()) {
      return fail(StatusCode::kCorrupt, "{} needs {} bytes at byte {}; the file ends after {}", what, bytes,
                  at_, left());
    }
    const std::byte* at = file_.data() + at_;
    at_ += bytes;
    return at;
  }

  Result<std::string_view> string(std::string_view what) {
    BUTTER_ASSIGN(const uint64_t bytes, number<uint64_t>(what));
    BUTTER_ASSIGN(const std::byte* at, take(bytes, what));
    return std::string_view(reinterpret_cast<const char*>(at), bytes);
  }

  // The name of a key or a tensor.
  Result<std::string_view> name(std::string_view what) {
    BUTTER_ASSIGN(const std::string_view text, string(what));
    if (text.empty()) return fail(StatusCode::kCorrupt, "{} is empty", what);
    if (text.size() > kMaxNameBytes) {
      return fail(StatusCode::kCorrupt, "{} has {} bytes; at most {} are expected", what, text.size(),
                  kMaxNameBytes);
    }
    if (!valid_utf8(text))
      return fail(StatusCode::kCorrupt, "{} is \"{}\", which is not UTF-8", what, printable(text));
    return text;
  }

 private:
  std::span<const std::byte> file_;
  uint64_t at_ = 0;
};

struct Header {
  uint64_t tensors;
  uint64_t keys;
};

Result<Header> read_header(Reader& reader) {
  BUTTER_ASSIGN(const std::byte* magic, reader.take(4, "the magic"));
  const std::string_view found(reinterpret_cast<const char*>(magic), 4);
  if (found != "GGUF")
    return fail(StatusCode::kCorrupt, "the file begins with \"{}\"; \"GGUF\" is expected", printable(found));
  BUTTER_ASSIGN(const uint32_t version, reader.number<uint32_t>("the version"));
  if (version == 0x02000000u || version == 0x03000000u)
    return fail(StatusCode::kUnsupported, "the file is big-endian GGUF; a little-endian one is expected");
  if (version != 2 && version != 3)
    return fail(StatusCode::kUnsupported, "the file is GGUF version {}; 2 or 3 is expected", version);
  BUTTER_ASSIGN(const uint64_t tensors, reader.number<uint64_t>("the tensor count"));
  BUTTER_ASSIGN(const uint64_t keys, reader.number<uint64_t>("the key count"));
  if (keys > reader.left() / kLeastKeyBytes || keys > kMaxKeys) {
    return fail(StatusCode::kCorrupt, "the key count is {}; at most {} are expected in a file of this size",
                keys, std::min(reader.left() / kLeastKeyBytes, kMaxKeys));
  }
  if (tensors > reader.left() / kLeastTensorBytes || tensors > kMaxTensors) {
    return fail(StatusCode::kCorrupt,
                "the tensor count is {}; at most {} are expected in a file of this size", tensors,
                std::min(reader.left() / kLeastTensorBytes, kMaxTensors));
  }
  return Header{tensors, keys};
}

// Reads the values of keys. Counts what all arrays of the file hold, so that many cannot add up.
class ValueReader {
 public:
  explicit ValueReader(Reader& reader) : reader_(reader) {}

  Result<AttributeValue> value(std::string_view key, uint32_t type) {
    if (type == kTypeString) {
      BUTTER_ASSIGN(const std::string_view text, reader_.string(key));
      return AttributeValue{text};
    }
    if (type == kTypeArray) return array(key, 1);
    const auto number = number_type(type);
    if (!number) {
      return fail(StatusCode::kCorrupt, "{} has the unknown value type {}; 0 to 12 are expected", key, type);
    }
    BUTTER_ASSIGN(const PackedNumbers one, numbers(key, *number, 1));
    return number_value(*number, one.data);
  }

 private:
  Result<AttributeValue> array(std::string_view key, int depth) {
    if (depth > kMaxArrayDepth)
      return fail(StatusCode::kLimit, "{} nests arrays deeper than {}", key, kMaxArrayDepth);
    BUTTER_ASSIGN(const uint32_t type, reader_.number<uint32_t>(key));
    BUTTER_ASSIGN(const uint64_t count, reader_.number<uint64_t>(key));
    if (type == kTypeString) return strings(key, count);
    if (type == kTypeArray) return arrays(key, count, depth);
    const auto number = number_type(type);
    if (!number) {
      return fail(StatusCode::kCorrupt, "{} has elements of the unknown type {}; 0 to 12 are expected", key,
                  type);
    }
    BUTTER_ASSIGN(const PackedNumbers packed, numbers(key, *number, count));
    return AttributeValue{packed};
  }

  Result<PackedNumbers> numbers(std::string_view key, NumberType type, uint64_t count) {
    BUTTER_TRY(check_count(key, count, static_cast<uint64_t>(number_bytes(type))));
    BUTTER_ASSIGN(const std::byte* data,
                  reader_.take(count * static_cast<uint64_t>(number_bytes(type)), key));
    if (type == NumberType::kBool) {
      for (uint64_t i = 0; i < count; ++i) {
        if (std::to_integer<int>(data[i]) <= 1) continue;
        return fail(StatusCode::kCorrupt, "{} holds the byte {} for a truth value; 0 or 1 is expected", key,
                    std::to_integer<int>(data[i]));
      }
    }
    return PackedNumbers{type, static_cast<int64_t>(count), data};
  }

  Result<AttributeValue> strings(std::string_view key, uint64_t count) {
    BUTTER_TRY(check_count(key, count, sizeof(uint64_t)));
    BUTTER_TRY(check_total(key, strings_ += count, kMaxStrings, "strings"));
    AttributeStrings out;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      BUTTER_ASSIGN(const std::string_view text, reader_.string(key));
      out.push_back(text);
    }
    return AttributeValue{std::move(out)};
  }

  Result<AttributeValue> arrays(std::string_view key, uint64_t count, int depth) {
    BUTTER_TRY(check_count(key, count, sizeof(uint32_t) + sizeof(uint64_t)));
    BUTTER_TRY(check_total(key, arrays_ += count, kMaxNestedArrays, "arrays"));
    AttributeList out;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      BUTTER_ASSIGN(AttributeValue item, array(key, depth + 1));
      out.push_back(std::move(item));
    }
    return AttributeValue{std::move(out)};
  }

  // Before anything is allocated for `count` elements.
  Status check_count(std::string_view key, uint64_t count, uint64_t least_bytes) const {
    if (count <= reader_.left() / least_bytes) return {};
    return fail(StatusCode::kCorrupt, "{} has {} elements of {} bytes or more; the file ends after {} bytes",
                key, count, least_bytes, reader_.left());
  }

  static Status check_total(std::string_view key, uint64_t total, uint64_t limit, std::string_view what) {
    if (total <= limit) return {};
    return fail(StatusCode::kLimit, "{} brings the {} in arrays to {}; at most {} are read", key, what, total,
                limit);
  }

  Reader& reader_;
  uint64_t strings_ = 0;
  uint64_t arrays_ = 0;
};

Result<Attributes> read_metadata(Reader& reader, uint64_t keys, std::shared_ptr<const void> owner) {
  auto document = std::make_shared<AttributeDocument>();
  document->source = "the GGUF metadata";
  document->owner = std::move(owner);
  document->root.members.reserve(keys);
  ValueReader values(reader);
  for (uint64_t i = 0; i < keys; ++i) {
    BUTTER_ASSIGN(const std::string_view name, reader.name(fmt::format("the name of key {}", i)));
    const std::string shown = printable(name);
    BUTTER_ASSIGN(const uint32_t type, reader.number<uint32_t>(shown));
    BUTTER_ASSIGN(AttributeValue value, values.value(shown, type));
    document->root.members.push_back({name, std::move(value)});
  }
  BUTTER_TRY(document->root.index());
  return Attributes(std::move(document));
}

Result<Shape> read_shape(Reader& reader, std::string_view name) {
  BUTTER_ASSIGN(const uint32_t rank, reader.number<uint32_t>(name));
  if (rank < 1 || rank > Shape::kMaxRank) {
    return fail(StatusCode::kCorrupt, "the tensor {} has {} dimensions; 1 to {} are expected", name, rank,
                Shape::kMaxRank);
  }
  std::array<uint64_t, Shape::kMaxRank> dims;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    BUTTER_ASSIGN(dims[i], reader.number<uint64_t>(name));
    if (dims[i] == 0) return fail(StatusCode::kCorrupt, "dimension {} of the tensor {} is 0", i, name);
    if (!multiply(elements, dims[i], elements) || elements > std::numeric_limits<int64_t>::max()) {
      return fail(StatusCode::kCorrupt, "the tensor {} has more than 2^63 elements", name);
    }
  }
  Shape shape;
  for (uint32_t i = rank; i > 0; --i) shape.append(static_cast<int64_t>(dims[i - 1]));
  return shape;
}

Result<DType> read_dtype(Reader& reader, std::string_view name) {
  BUTTER_ASSIGN(const uint32_t id, reader.number<uint32_t>(name));
  const TensorType* type = tensor_type(id);
  if (!type) return fail(StatusCode::kUnsupported, "the tensor {} has the unknown type {}", name, id);
  if (!type->dtype) {
    return fail(StatusCode::kUnsupported, "the tensor {} is stored as {}; one of {} is expected", name,
                type->name, readable_types());
  }
  return *type->dtype;
}

// One tensor's description. The place of its data is known, and checked, once the header has ended.
Result<TensorEntry> read_tensor(Reader& reader, uint64_t index) {
  TensorEntry entry;
  BUTTER_ASSIGN(entry.name, reader.name(fmt::format("the name of tensor {}", index)));
  const std::string shown = printable(entry.name);
  BUTTER_ASSIGN(entry.view.shape, read_shape(reader, shown));
  BUTTER_ASSIGN(entry.view.dtype, read_dtype(reader, shown));
  BUTTER_ASSIGN(entry.begin, reader.number<uint64_t>(shown));
  const DTypeInfo& info = dtype_info(entry.view.dtype);
  if (entry.view.columns() % info.block_elements != 0) {
    return fail(StatusCode::kCorrupt, "the tensor {} has rows of {} elements; {} needs a multiple of {}",
                shown, entry.view.columns(), info.name, info.block_elements);
  }
  const auto blocks = static_cast<uint64_t>(entry.view.shape.elements() / info.block_elements);
  if (!multiply(blocks, static_cast<uint64_t>(info.block_bytes), entry.bytes))
    return fail(StatusCode::kCorrupt, "the tensor {} has more than 2^64 bytes", shown);
  return entry;
}

Result<uint64_t> alignment_of(const Attributes& metadata) {
  BUTTER_ASSIGN(const int64_t value, metadata.get_int_or("general.alignment", kDefaultAlignment));
  const auto alignment = static_cast<uint64_t>(value);
  if (value < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    return fail(StatusCode::kCorrupt, "general.alignment is {}; a power of two from 8 to {} is expected",
                value, kMaxAlignment);
  }
  return alignment;
}

// Points the tensors at their bytes: aligned, and inside the file.
Status place(std::vector<TensorEntry>& entries, std::span<const std::byte> file, uint64_t header_bytes,
             uint64_t alignment) {
  const uint64_t data_begin = (header_bytes + alignment - 1) & ~(alignment - 1);
  const uint64_t data_bytes = data_begin <= file.size() ? file.size() - data_begin : 0;
  for (TensorEntry& entry : entries) {
    if (entry.begin % alignment != 0) {
      return fail(StatusCode::kCorrupt,
                  "the tensor {} begins at byte {} of the data; a multiple of {} is expected",
                  printable(entry.name), entry.begin, alignment);
    }
    uint64_t end;
    if (!add(entry.begin, entry.bytes, end) || end > data_bytes) {
      return fail(StatusCode::kCorrupt,
                  "the tensor {} has {} bytes at byte {} of the data; the data has {} bytes",
                  printable(entry.name), entry.bytes, entry.begin, data_bytes);
    }
    entry.view.data = file.data() + data_begin + entry.begin;
  }
  return {};
}

}  // namespace

bool Gguf::recognises(std::span<const std::byte> file) {
  return file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
}

Result<Gguf> Gguf::parse(std::span<const std::byte> file, std::shared_ptr<const void> owner) {
  Reader reader(file);
  BUTTER_ASSIGN(const Header header, read_header(reader));
  Gguf gguf;
  BUTTER_ASSIGN(gguf.metadata_, read_metadata(reader, header.keys, std::move(owner)));
  std::vector<TensorEntry> entries;
  entries.reserve(header.tensors);
  for (uint64_t i = 0; i < header.tensors; ++i) {
    BUTTER_ASSIGN(TensorEntry entry, read_tensor(reader, i));
    entries.push_back(std::move(entry));
  }
  BUTTER_ASSIGN(const uint64_t alignment, alignment_of(gguf.metadata_));
  BUTTER_TRY(place(entries, file, reader.position(), alignment));
  BUTTER_ASSIGN(gguf.tensors_, TensorTable::create(std::move(entries)));
  return gguf;
}

}  // namespace butter
