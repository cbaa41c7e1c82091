#include "text/sentencepiece_file.h"

#include <bit>
#include <cstring>

#include "text/tokenizer.h"

namespace butter {
namespace {

constexpr uint64_t kBytesWireType = 2;

// The fields of one message of protobuf's wire format, one after the other.
class MessageReader {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t number_value = 0;    // of a varint, or the bits of a fixed one
    std::string_view bytes = {};  // of a text or message
  };

  explicit MessageReader(std::string_view message) : rest_(message) {}

  // False at the end.
  Result<bool> next(Field* field) {
    if (rest_.empty()) return false;
    BUTTER_ASSIGN(const uint64_t key, read_varint());
    *field = {};
    field->number = key >> 3;
    switch (key & 7) {
      case 0: {
        BUTTER_ASSIGN(field->number_value, read_varint());
        return true;
      }
      case 1:
        return read_fixed(8, field);
      case kBytesWireType: {
        BUTTER_ASSIGN(const uint64_t size, read_varint());
        BUTTER_ASSIGN(field->bytes, take(size));
        return true;
      }
      case 5:
        return read_fixed(4, field);
      default:
        return fail(StatusCode::kCorrupt, "field {} has wire type {}, which no model has", field->number,
                    key & 7);
    }
  }

 private:
  Result<std::string_view> take(uint64_t size) {
    if (size > rest_.size())
      return fail(StatusCode::kCorrupt, "a field of {} bytes has {} bytes left", size, rest_.size());
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  Result<uint64_t> read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return fail(StatusCode::kCorrupt, "a number does not end");
  }

  Result<bool> read_fixed(size_t size, Field* field) {
    BUTTER_ASSIGN(const std::string_view bytes, take(size));
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&field->number_value, bytes.data(), size);
    return true;
  }

  std::string_view rest_;
};

// Calls `take` with each field of a message.
template <typename Take>
Status for_each_field(std::string_view message, const Take& take) {
  MessageReader reader(message);
  MessageReader::Field field;
  while (true) {
    BUTTER_ASSIGN(const bool is_there, reader.next(&field));
    if (!is_there) return {};
    BUTTER_TRY(take(field));
  }
}

using Field = MessageReader::Field;

Status read_piece(std::string_view message, SentencePieceFile* file) {
  std::string_view text;
  float score = 0;
  uint64_t type = static_cast<uint64_t>(TokenType::kNormal);
  BUTTER_TRY(for_each_field(message, [&](const Field& field) -> Status {
    if (field.number == 1) text = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.number_value));
    if (field.number == 3) type = field.number_value;
    return {};
  }));
  // The numbers are those of GGUF, which took them from here.
  const auto known = token_type_of(static_cast<int64_t>(std::min<uint64_t>(type, 1000)));
  if (!known) {
    return fail(StatusCode::kCorrupt, "piece {} has type {}; 1 to 6 are expected", file->pieces.size(), type);
  }
  if (file->pieces.size() >= VocabularyTokenizer::kMaxTokens) {
    return fail(StatusCode::kLimit, "there are more than {} pieces", VocabularyTokenizer::kMaxTokens);
  }
  const bool is_hole = text == std::string_view("\0", 1) && *known == TokenType::kUnused;
  file->pieces.push_back(is_hole ? std::string_view() : text);
  file->scores.push_back(score);
  file->types.push_back(*known);
  return {};
}

Status read_trainer(std::string_view message, SentencePieceFile* file) {
  return for_each_field(message, [&](const Field& field) -> Status {
    const auto set_text = [&](std::string_view* text) {
      if (!field.bytes.empty()) *text = field.bytes;
    };
    switch (field.number) {
      case 3:
        if (field.number_value < 1 || field.number_value > 4) {
          return fail(StatusCode::kCorrupt, "model_type is {}; 1 to 4 are expected", field.number_value);
        }
        file->model = static_cast<SentencePieceFile::Model>(field.number_value);
        break;
      case 24:
        file->rules.treat_whitespace_as_suffix = field.number_value != 0;
        break;
      case 35:
        file->byte_fallback = field.number_value != 0;
        break;
      case 44:
        file->unk_surface = field.bytes;
        break;
      case 46:
        set_text(&file->bos_piece);
        break;
      case 47:
        set_text(&file->eos_piece);
        break;
      case 48:
        set_text(&file->pad_piece);
        break;
      default:
        break;
    }
    return {};
  });
}

Status read_normalizer(std::string_view message, SentencePieceRules* rules) {
  return for_each_field(message, [&](const Field& field) -> Status {
    if (field.number == 2) rules->precompiled_charsmap = field.bytes;
    if (field.number == 3) rules->add_dummy_prefix = field.number_value != 0;
    if (field.number == 4) rules->remove_extra_whitespaces = field.number_value != 0;
    if (field.number == 5) rules->escape_whitespaces = field.number_value != 0;
    return {};
  });
}

}  // namespace

Result<SentencePieceFile> read_sentencepiece_file(std::string_view bytes) {
  SentencePieceFile file;
  const auto take = [&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return read_piece(field.bytes, &file);
      case 2:
        return read_trainer(field.bytes, &file);
      case 3:
        return read_normalizer(field.bytes, &file.rules);
      case 5: {
        SentencePieceRules denormalizer;
        BUTTER_TRY(read_normalizer(field.bytes, &denormalizer));
        file.has_denormalizer = !denormalizer.precompiled_charsmap.empty();
        return {};
      }
      default:
        return {};
    }
  };
  BUTTER_TRY(for_each_field(bytes, take));
  return file;
}

}  // namespace butter
