#include "cache/cache_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cache/cache_scheme.h"
#include "cache/hashed_file.h"
#include "core/check.h"
#include "kernels/centre.h"
#include "kernels/row_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace butter {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMagic[8] = {'b', 'u', 't', 't', 'e', 'r', 'k', 'v'};
constexpr uint32_t kVersion = 2;
constexpr uint32_t kMaxHeaderBytes = 64 << 10;
// Sequences whose layers all have windows go on for ever; those that are saved do not come so far.
constexpr int64_t kMaxPosition = int64_t{1} << 31;

struct Prefix {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t header_hash;
};
static_assert(sizeof(Prefix) == 32);

uint64_t header_hash(const Prefix& prefix, const std::string& header) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, &prefix, offsetof(Prefix, header_hash));
  XXH3_64bits_update(&state, header.data(), header.size());
  return XXH3_64bits_digest(&state);
}

// --- What a file must hold

// Bytes of `count` raw rows of all layers of a class.
int64_t raw_bytes(const WindowClass& window_class, DType raw, int64_t count) {
  int64_t bytes = 0;
  for (const KvLayerShape& shape : window_class.layers) {
    for (Side side : {Side::kKey, Side::kValue})
      bytes += shape.kv_heads * raw_rows_bytes(shape.row_shape(side, raw), count);
  }
  return bytes;
}

int64_t centre_bytes(const WindowClass& window_class) {
  int64_t bytes = 0;
  for (const KvLayerShape& shape : window_class.layers) bytes += int64_t{2} * shape.kv_heads * shape.key_dim;
  return bytes;
}

// Positions are bounded by now, so sums stay within 63 bits.
int64_t rows_bytes(const CacheLayout& layout, int64_t position) {
  const KvScheme& scheme = layout.options.scheme;
  int64_t bytes = position > 0 ? layout.state.bytes : 0;
  for (const WindowClass& window_class : layout.classes) {
    if (window_class.layers.empty()) continue;
    const PageRuns runs = page_runs(window_class.window, layout.pins(), position);
    bytes += runs.count() * window_class.sealed.bytes;
    bytes += raw_bytes(window_class, scheme.raw, position % kPageRows);
    if (layout.pins()) bytes += raw_bytes(window_class, scheme.raw, std::min<int64_t>(position, kPinnedRows));
    if (scheme.centres() && runs.end > 0) bytes += centre_bytes(window_class);
  }
  return bytes;
}

Json pages_json(const CacheLayout& layout, int64_t position) {
  Json pages = Json::array();
  for (const WindowClass& window_class : layout.classes) {
    if (window_class.layers.empty()) {
      pages.push_back({0, 0, 0});
      continue;
    }
    const PageRuns runs = page_runs(window_class.window, layout.pins(), position);
    pages.push_back({runs.kept_end, runs.recent_begin, runs.end});
  }
  return pages;
}

Json header_json(const CacheLayout& layout, const CacheFileContext& context, int64_t position,
                 int64_t tokens) {
  const CacheOptions& options = layout.options;
  Json header = {{"model", context.model},
                 {"kv_cache", scheme_name(options.scheme)},
                 {"raw", dtype_name(options.scheme.raw)},
                 {"window", {options.window.max_size, options.window.keep}},
                 {"position", position},
                 {"tokens", tokens},
                 {"pages", pages_json(layout, position)}};
  for (const RopeTable& table : context.rope_tables) {
    if (!table.long_inv_freq.empty())
      header["rope"] = table.turns_long(layout.max_positions()) ? "long" : "short";
  }
  return header;
}

Prefix make_prefix(const std::string& header, int64_t body_bytes) {
  Prefix prefix{};
  std::copy_n(kMagic, sizeof kMagic, prefix.magic);
  prefix.version = kVersion;
  prefix.header_bytes = static_cast<uint32_t>(header.size());
  prefix.file_bytes = sizeof prefix + header.size() + static_cast<uint64_t>(body_bytes + kFileChecksumBytes);
  prefix.header_hash = header_hash(prefix, header);
  return prefix;
}

// --- Rows

const RowCodec* codec_of(const RowFormat& format, const SealOptions& options) {
  return options.reference ? format.reference : format.cpu(options.isa);
}

bool all_finite(const std::byte* rows, int64_t bytes, DType raw) {
  // The exponent is all ones in NaN and in infinity.
  const auto none = [&](auto mask) {
    bool finite = true;
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof mask)) {
      decltype(mask) bits;
      std::memcpy(&bits, rows + at, sizeof bits);
      finite &= (bits & mask) != mask;
    }
    return finite;
  };
  switch (raw) {
    case DType::kF16:
      return none(uint16_t{0x7c00});
    case DType::kBF16:
      return none(uint16_t{0x7f80});
    default:
      BUTTER_CHECK(raw == DType::kF32);
      return none(uint32_t{0x7f800000});
  }
}

// One layer's part of a sealed block.
struct SealedLayer {
  const KvScheme& scheme;
  const KvLayerShape& shape;
  const LayerLayout& layout;
  std::byte* base;  // of the block
  const WindowClass& window_class;
  size_t index;             // of the layer in its class
  const std::byte* centre;  // the block that the centres of the class are in, or null

  std::byte* record(size_t head, Side side) const {
    const RecordOffsets& offsets = layout.heads[head];
    return base + (side == Side::kKey ? offsets.key : offsets.value);
  }
  std::byte* tail(size_t head) const { return base + layout.heads[head].tail; }
  CentreId centre_of(size_t head) const {
    if (centre == nullptr) return {};
    return centre_id(centre + window_class.centre.layers[index].heads[head].key, shape.key_dim);
  }
  // Where the same bytes stand in the exchange form, which has the layer's own shape.
  int64_t place(const std::byte* at) const { return at - base - layout.begin; }
};

// Walks the rows of a class in the file's order: what save and load share, so that they cannot differ.
//   io.state(layout, block), io.raw(shape, rows, bytes), io.centre(shape, centre), io.sealed(SealedLayer):
//   Status
template <typename Io>
Status walk_raw_rows(const WindowClass& window_class, DType raw, const BlockLayout& layout, std::byte* block,
                     int64_t rows, Io& io) {
  for (size_t i = 0; i < window_class.layers.size(); ++i) {
    const KvLayerShape& shape = window_class.layers[i];
    for (const RecordOffsets& offsets : layout.layers[i].heads) {
      BUTTER_TRY(io.raw(shape, block + offsets.key, raw_rows_bytes(shape.row_shape(Side::kKey, raw), rows)));
      BUTTER_TRY(
          io.raw(shape, block + offsets.value, raw_rows_bytes(shape.row_shape(Side::kValue, raw), rows)));
    }
  }
  return {};
}

template <typename Io>
Status walk_class(const CacheLayout& layout, const WindowClass& window_class, const ClassBlocks& blocks,
                  int64_t position, Io& io) {
  const KvScheme& scheme = layout.options.scheme;
  if (layout.pins()) {
    const int64_t rows = std::min<int64_t>(position, kPinnedRows);
    BUTTER_TRY(walk_raw_rows(window_class, scheme.raw, window_class.pinned, blocks.pinned, rows, io));
  }
  for (size_t i = 0; blocks.centre != nullptr && i < window_class.layers.size(); ++i) {
    for (const RecordOffsets& offsets : window_class.centre.layers[i].heads)
      BUTTER_TRY(io.centre(window_class.layers[i], blocks.centre + offsets.key));
  }
  for (std::byte* page : blocks.pages) {
    for (size_t i = 0; i < window_class.layers.size(); ++i)
      BUTTER_TRY(io.sealed(SealedLayer{scheme, window_class.layers[i], window_class.sealed.layers[i], page,
                                       window_class, i, blocks.centre}));
  }
  const int64_t open_rows = position % kPageRows;
  if (open_rows == 0) return {};
  return walk_raw_rows(window_class, scheme.raw, layout.open_block(window_class), blocks.open, open_rows, io);
}

template <typename Io>
Status walk(const CacheSet& caches, Io& io) {
  const CacheLayout& layout = caches.layout();
  if (caches.position() == 0) return {};
  if (layout.state.bytes > 0) BUTTER_TRY(io.state(layout, caches.state()));
  for (size_t index = 0; index < layout.classes.size(); ++index) {
    const WindowClass& window_class = layout.classes[index];
    if (window_class.layers.empty()) continue;
    BUTTER_TRY(walk_class(layout, window_class, caches.blocks(index), caches.position(), io));
  }
  return {};
}

// Room for the largest layer of a sealed block.
Result<Buffer> layer_scratch(const CacheLayout& layout) {
  int64_t bytes = Buffer::kAlignment;
  for (const WindowClass& window_class : layout.classes) {
    for (const LayerLayout& layer : window_class.sealed.layers) bytes = std::max(bytes, layer.bytes);
  }
  return Buffer::allocate(bytes);
}

class RowSaver {
 public:
  RowSaver(HashedWriter& file, const SealOptions& codecs, Buffer scratch)
      : file_(file), codecs_(codecs), scratch_(std::move(scratch)) {}

  Status state(const CacheLayout& layout, const std::byte* block) {
    return file_.write(block, static_cast<size_t>(layout.state.bytes));
  }
  Status raw(const KvLayerShape&, const std::byte* rows, int64_t bytes) {
    return file_.write(rows, static_cast<size_t>(bytes));
  }
  Status centre(const KvLayerShape& shape, const std::byte* centre) {
    return file_.write(centre, size_t{2} * static_cast<size_t>(shape.key_dim));
  }
  Status sealed(const SealedLayer& layer) {
    std::memset(scratch_.data(), 0, static_cast<size_t>(layer.layout.bytes));
    for (size_t head = 0; head < layer.layout.heads.size(); ++head) {
      for (Side side : {Side::kKey, Side::kValue}) export_record(layer, head, side);
      if (layer.scheme.seals())
        std::memcpy(scratch_.data() + layer.place(layer.tail(head)), layer.tail(head), sizeof(RecordTail));
    }
    return file_.write(scratch_.data(), static_cast<size_t>(layer.layout.bytes));
  }

 private:
  void export_record(const SealedLayer& layer, size_t head, Side side) {
    const RowFormat& format = layer.scheme.format(side);
    const RowShape shape = layer.shape.row_shape(side, layer.scheme);
    const std::byte* record = layer.record(head, side);
    std::byte* exchange = scratch_.data() + layer.place(record);
    const RowCodec* codec = codec_of(format, codecs_);
    if (codec != nullptr && codec->export_record != nullptr) {
      codec->export_record(shape, record, exchange);
    } else {
      std::memcpy(exchange, record, static_cast<size_t>(format.record_bytes(shape)));
    }
  }

  HashedWriter& file_;
  const SealOptions codecs_;
  Buffer scratch_;
};

// The checksum is no secret, so a file may have the right one and still hold anything: what is read is
// checked as far as something relies on it.
class RowLoader {
 public:
  RowLoader(HashedReader& file, const CacheLayout& layout, const CacheFileContext& context, Buffer scratch)
      : file_(file), raw_(layout.options.scheme.raw), codecs_(context.codecs), scratch_(std::move(scratch)) {
    if (!layout.options.scheme.centres()) return;
    for (const RopeTable& table : context.rope_tables)
      rotary_.emplace_back(table.frequencies(layout.max_positions()), 0);
  }

  Status state(const CacheLayout& layout, std::byte* block) {
    BUTTER_TRY(file_.read(block, static_cast<size_t>(layout.state.bytes)));
    for (size_t i = 0; i < layout.state_layers.size(); ++i) {
      const StateOffsets& offsets = layout.state.layers[i];
      if (all_finite(block + offsets.conv, offsets.bytes, DType::kF32)) continue;
      return fail(StatusCode::kCorrupt,
                  "layer {} has recurrent state that is NaN or infinite; finite numbers are expected",
                  layout.state_layers[i].layer);
    }
    return {};
  }
  Status raw(const KvLayerShape& shape, std::byte* rows, int64_t bytes) {
    BUTTER_TRY(file_.read(rows, static_cast<size_t>(bytes)));
    return check_finite(shape, rows, bytes, raw_);
  }
  Status centre(const KvLayerShape& shape, std::byte* centre) {
    const int64_t bytes = int64_t{2} * shape.key_dim;
    BUTTER_TRY(file_.read(centre, static_cast<size_t>(bytes)));
    BUTTER_TRY(check_finite(shape, centre, bytes, DType::kF16));
    choose_exact_pairs(shape.key_dim,
                       shape.rope_table < 0 ? no_rotation_ : rotary_[static_cast<size_t>(shape.rope_table)],
                       centre);
    return {};
  }
  Status sealed(const SealedLayer& layer) {
    BUTTER_TRY(file_.read(scratch_.data(), static_cast<size_t>(layer.layout.bytes)));
    for (size_t head = 0; head < layer.layout.heads.size(); ++head) {
      for (Side side : {Side::kKey, Side::kValue}) BUTTER_TRY(import_record(layer, head, side));
      if (layer.scheme.seals()) BUTTER_TRY(import_tail(layer, head));
    }
    return {};
  }

 private:
  static Status check_finite(const KvLayerShape& shape, const std::byte* rows, int64_t bytes, DType type) {
    if (all_finite(rows, bytes, type)) return {};
    return fail(StatusCode::kCorrupt,
                "layer {} has a value that is NaN or infinite; finite ones are expected", shape.layer);
  }

  Status import_record(const SealedLayer& layer, size_t head, Side side) {
    const RowFormat& format = layer.scheme.format(side);
    const RowShape shape = layer.shape.row_shape(side, layer.scheme);
    std::byte* record = layer.record(head, side);
    const std::byte* exchange = scratch_.data() + layer.place(record);
    const int64_t bytes = format.record_bytes(shape);
    const RowCodec* codec = codec_of(format, codecs_);
    if (!format.seals) BUTTER_TRY(check_finite(layer.shape, exchange, bytes, raw_));
    if (codec != nullptr && codec->import_record != nullptr) {
      codec->import_record(shape, exchange, record);
    } else {
      std::memcpy(record, exchange, static_cast<size_t>(bytes));
    }
    return {};
  }

  Status import_tail(const SealedLayer& layer, size_t head) {
    RecordTail tail;
    std::memcpy(&tail, scratch_.data() + layer.place(layer.tail(head)), sizeof tail);
    const CentreId centre = layer.centre_of(head);
    if (tail.centre != centre) {
      return fail(StatusCode::kCorrupt,
                  "layer {} has keys that were coded with centre {:02x}; the file has centre {:02x}",
                  layer.shape.layer, fmt::join(tail.centre, ""), fmt::join(centre, ""));
    }
    if (tail.centred != 0 && !layer.scheme.centres()) {
      return fail(StatusCode::kCorrupt, "layer {} has a tail of a record that no {} cache has",
                  layer.shape.layer, scheme_name(layer.scheme));
    }
    std::memcpy(layer.tail(head), &tail, sizeof tail);
    return {};
  }

  HashedReader& file_;
  const DType raw_;
  const SealOptions codecs_;
  Buffer scratch_;
  const RotaryTable no_rotation_;
  std::vector<RotaryTable> rotary_;
};

// --- Checks before anything is leased

// What the header of a file says, as text for a message: short, and without control characters.
std::string shown(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 100) + "...";
  return text;
}

// kCorrupt: a field that is there in every file of this version is missing or means nothing.
tl::unexpected<Error> odd_field(const char* name, const Json& found) {
  return fail(StatusCode::kCorrupt, "its header has {} as {}, which no cache has", shown(found), name);
}

struct Field {
  const char* name;
  const char* meaning;  // "it was saved with {meaning} X; Y is expected"
};
constexpr Field kFields[] = {{"model", "the model"},
                             {"kv_cache", "--kv-cache"},
                             {"raw", "raw rows of type"},
                             {"window", "--kv-window-size and --kv-window-keep"},
                             {"rope", "RoPE frequencies, which --max-context chooses,"}};

struct FileContents {
  int64_t position = 0;
  int64_t tokens = 0;
  int64_t body_begin = 0;
};

Status check_header(const Json& header, const CacheLayout& layout, const CacheFileContext& context,
                    FileContents& contents) {
  const auto field_of = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? Json() : *found;
  };
  const auto field = [&](const char* name) { return field_of(header, name); };
  const Json wanted_header = header_json(layout, context, 0, 0);
  for (const Field& known : kFields) {
    const Json found = field(known.name), wanted = field_of(wanted_header, known.name);
    if (found == wanted) continue;
    return fail(StatusCode::kInvalidArgument, "it was saved with {} {}; {} is expected", known.meaning,
                shown(found), shown(wanted));
  }
  const Json position = field("position"), tokens = field("tokens"), pages = field("pages");
  if (!position.is_number_unsigned() || position.get<uint64_t>() > uint64_t{kMaxPosition})
    return odd_field("position", position);
  contents.position = position.get<int64_t>();
  if (contents.position > layout.max_positions()) {
    return fail(StatusCode::kLimit, "it holds {} positions; the context has {} (--max-context)",
                contents.position, layout.max_positions());
  }
  if (!tokens.is_number_unsigned() || (tokens != 0 && tokens != position)) return odd_field("tokens", tokens);
  contents.tokens = tokens.get<int64_t>();
  if (pages != pages_json(layout, contents.position)) return odd_field("pages", pages);
  return {};
}

// Reads up to the rows.
Status read_contents(HashedReader& file, const CacheLayout& layout, const CacheFileContext& context,
                     FileContents& contents) {
  Prefix prefix{};
  const auto bytes = static_cast<uint64_t>(file.bytes());
  BUTTER_TRY(file.read(&prefix, std::min<uint64_t>(sizeof prefix, bytes)));
  if (!std::equal(kMagic, kMagic + sizeof kMagic, prefix.magic) && bytes > 0)
    return fail(StatusCode::kInvalidArgument, "it is no saved cache; those begin with \"butterkv\"");
  if (bytes < sizeof prefix) return fail(StatusCode::kCorrupt, "it is cut: it has only {} bytes", bytes);
  if (prefix.version != kVersion) {
    return fail(StatusCode::kUnsupported, "it has layout version {}; {} is expected", prefix.version,
                kVersion);
  }
  if (prefix.file_bytes != bytes) {
    return fail(StatusCode::kCorrupt, "it has {} bytes; {} are expected", bytes, prefix.file_bytes);
  }
  if (prefix.header_bytes > kMaxHeaderBytes || prefix.header_bytes > bytes - sizeof prefix) {
    return fail(StatusCode::kCorrupt, "its header has {} bytes; at most {} are expected", prefix.header_bytes,
                std::min<uint64_t>(kMaxHeaderBytes, bytes - sizeof prefix));
  }
  std::string text(prefix.header_bytes, '\0');
  BUTTER_TRY(file.read(text.data(), text.size()));
  if (header_hash(prefix, text) != prefix.header_hash)
    return fail(StatusCode::kCorrupt, "it is damaged: the checksum of its header is wrong");
  const Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) return fail(StatusCode::kCorrupt, "its header is no JSON object");
  BUTTER_TRY(check_header(header, layout, context, contents));
  contents.body_begin = static_cast<int64_t>(sizeof prefix + text.size());
  const int64_t body_bytes = 4 * contents.tokens + rows_bytes(layout, contents.position);
  const int64_t expected = contents.body_begin + body_bytes + kFileChecksumBytes;
  if (file.bytes() != expected) {
    return fail(StatusCode::kCorrupt, "it has {} bytes; {} positions of this model take {}", bytes,
                contents.position, expected);
  }
  return {};
}

// Brings the file to its rows again, as if the head had not been read before.
Status seek_rows(HashedReader& file, int64_t body_begin) {
  file.rewind();
  std::vector<std::byte> head(static_cast<size_t>(body_begin));
  return file.read(head.data(), head.size());
}

}  // namespace

Status save_cache(const CacheSet& caches, std::span<const int32_t> tokens, const CacheFileContext& context,
                  const std::string& path) {
  const CacheLayout& layout = caches.layout();
  const int64_t position = caches.position();
  if (!tokens.empty() && static_cast<int64_t>(tokens.size()) != position) {
    return fail(StatusCode::kInvalidArgument, "{} tokens were given for a cache of {} positions",
                tokens.size(), position);
  }
  if (position > kMaxPosition) {
    return fail(StatusCode::kLimit, "a cache of {} positions cannot be saved; at most {} are expected",
                position, kMaxPosition);
  }
  const std::string header =
      header_json(layout, context, position, static_cast<int64_t>(tokens.size())).dump();
  const Prefix prefix =
      make_prefix(header, static_cast<int64_t>(tokens.size_bytes()) + rows_bytes(layout, position));
  BUTTER_ASSIGN(Buffer scratch, layer_scratch(layout));
  BUTTER_ASSIGN(HashedWriter file, HashedWriter::create(path));
  BUTTER_TRY(file.write(&prefix, sizeof prefix));
  BUTTER_TRY(file.write(header.data(), header.size()));
  BUTTER_TRY(file.write(tokens.data(), tokens.size_bytes()));
  RowSaver saver(file, context.codecs, std::move(scratch));
  BUTTER_TRY(walk(caches, saver));
  return file.finish();
}

Status load_cache(CacheSet& caches, std::vector<int32_t>* tokens, const CacheFileContext& context,
                  const std::string& path) {
  const CacheLayout& layout = caches.layout();
  BUTTER_ASSIGN(HashedReader file, HashedReader::open(path));
  FileContents contents;
  BUTTER_TRY(read_contents(file, layout, context, contents));
  BUTTER_TRY(file.check());
  BUTTER_ASSIGN(Buffer scratch, layer_scratch(layout));
  BUTTER_ASSIGN(CacheSet loaded, caches.leased_at(contents.position));
  BUTTER_TRY(seek_rows(file, contents.body_begin));
  std::vector<int32_t> ids(static_cast<size_t>(contents.tokens));
  BUTTER_TRY(file.read(ids.data(), 4 * ids.size()));
  RowLoader loader(file, layout, context, std::move(scratch));
  BUTTER_TRY(walk(loaded, loader));
  // Again: another program may have written meanwhile.
  BUTTER_TRY(file.check());
  caches = std::move(loaded);
  if (tokens != nullptr) *tokens = std::move(ids);
  return {};
}

}  // namespace butter
