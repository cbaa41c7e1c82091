#include "butter/quality_card.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/status.h"
#include "core/whole_file.h"
#include "engine/known_models.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace butter {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kLayout = 1;  // of the JSON
constexpr int64_t kHashedEnd = int64_t{1} << 20;
constexpr int64_t kMostCardBytes = int64_t{1} << 20;
constexpr size_t kMostRows = 1024;

std::string hex(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

// --- Fingerprints

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  ~Hasher() { XXH3_freeState(state_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(std::string_view bytes) {
    const uint64_t size = bytes.size();  // so that parts cannot be cut elsewhere and give the same
    XXH3_64bits_update(state_, &size, sizeof size);
    XXH3_64bits_update(state_, bytes.data(), bytes.size());
  }
  std::string digest() const { return hex(XXH3_64bits_digest(state_)); }

 private:
  XXH3_state_t* state_;
};

bool holds_weights(const fs::path& path) {
  return path.extension() == ".safetensors" || path.extension() == ".gguf";
}

Result<std::vector<fs::path>> weight_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<fs::path>{path};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (holds_weights(entry->path())) files.push_back(entry->path());
  }
  if (error) return fail(StatusCode::kIo, "{} cannot be listed: {}", path.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

Status add_file(const fs::path& path, Hasher& hasher) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : -1;
  if (size < 0) return fail(StatusCode::kIo, "{} cannot be read: {}", path.string(), std::strerror(errno));
  hasher.add(path.filename().string());
  hasher.add(std::to_string(size));
  std::string part(static_cast<size_t>(std::min(size, kHashedEnd)), '\0');
  for (const int64_t from : {int64_t{0}, size - static_cast<int64_t>(part.size())}) {
    file.seekg(from);
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    if (!file) return fail(StatusCode::kIo, "{} cannot be read: {}", path.string(), std::strerror(errno));
    hasher.add(part);
  }
  return {};
}

// --- Places

struct Places {
  fs::path beside;    // the model's file or folder
  fs::path in_cache;  // empty where the user has no cache directory
  std::string model;  // its name
  std::string hash;
};

Result<Places> places_of(const std::string& model) {
  BUTTER_ASSIGN(std::string path, resolve_model(model));
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  Places places;
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored).lexically_normal();
  places.model = whole.filename().string();
  places.beside = whole.string() + ".quality.json";
  BUTTER_ASSIGN(places.hash, model_fingerprint(path));
  if (const auto cache = cache_directory()) {
    const std::string name = places.hash.substr(places.hash.find(':') + 1);
    places.in_cache = fs::path(*cache) / "quality" / (name + ".json");
  }
  return places;
}

// Whether a file can be made there, or take the place of the one there is.
bool can_write(const fs::path& path) {
  std::error_code ignored;
  return ::access(path.parent_path().c_str(), W_OK | X_OK) == 0 && !fs::is_directory(path, ignored);
}

Result<fs::path> writable_place(const Places& places) {
  if (can_write(places.beside)) return places.beside;
  if (!places.in_cache.empty()) {
    std::error_code ignored;
    fs::create_directories(places.in_cache.parent_path(), ignored);
    if (can_write(places.in_cache)) return places.in_cache;
  }
  return fail(StatusCode::kIo,
              "a quality card can be written neither beside the model ({}) nor in the cache directory ({})",
              places.beside.string(), places.in_cache.empty() ? "there is none" : places.in_cache.string());
}

// --- JSON

Json needle_json(const NeedleScore& score) {
  return {{"asked", score.asked}, {"right", score.right}, {"context_tokens", score.context_tokens}};
}

Json row_json(const SchemeQuality& row) {
  return {{"kv_cache", row.kv_cache},
          {"positions", row.positions},
          {"bits_per_value", row.bits_per_value},
          {"ratio_sealed", row.ratio_sealed},
          {"kld_mean", row.kld_mean},
          {"kld_p99", row.kld_p99},
          {"top1", row.top1},
          {"ppl", row.ppl},
          {"ppl_raw", row.ppl_raw},
          {"needle", row.needle ? needle_json(*row.needle) : Json()}};
}

std::string card_text(const QualityCard& card) {
  Json json = {{"layout", kLayout},       {"model", card.model},         {"model_hash", card.model_hash},
               {"text", card.text},       {"text_hash", card.text_hash}, {"version", card.version},
               {"command", card.command}, {"rows", Json::array()}};
  for (const SchemeQuality& row : card.rows) json["rows"].push_back(row_json(row));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// NaN where there is no such number: a figure that was not measured is null.
double number_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  const bool is_number = found != object.end() && found->is_number();
  return is_number ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

int64_t count_of(const Json& object, const char* name) {
  const double number = number_of(object, name);
  return number >= 0 && number < 9e15 ? static_cast<int64_t>(number) : 0;
}

SchemeQuality row_of(const Json& json) {
  SchemeQuality row;
  row.kv_cache = text_of(json, "kv_cache");
  row.positions = count_of(json, "positions");
  row.bits_per_value = number_of(json, "bits_per_value");
  row.ratio_sealed = number_of(json, "ratio_sealed");
  row.kld_mean = number_of(json, "kld_mean");
  row.kld_p99 = number_of(json, "kld_p99");
  row.top1 = number_of(json, "top1");
  row.ppl = number_of(json, "ppl");
  row.ppl_raw = number_of(json, "ppl_raw");
  if (const auto needle = json.find("needle"); needle != json.end() && needle->is_object()) {
    NeedleScore score;
    score.asked = count_of(*needle, "asked");
    score.right = std::min(count_of(*needle, "right"), score.asked);
    score.context_tokens = count_of(*needle, "context_tokens");
    row.needle = score;
  }
  return row;
}

Result<QualityCard> parse_card(const std::string& path, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  const bool is_card = json.is_object() && count_of(json, "layout") == kLayout && json.contains("rows") &&
                       json["rows"].is_array() && json["rows"].size() <= kMostRows;
  if (!is_card) {
    return fail(StatusCode::kCorrupt,
                "{} is no quality card of layout {} (`butter eval --card` writes it anew)", path, kLayout);
  }
  QualityCard card{text_of(json, "model"),
                   text_of(json, "model_hash"),
                   text_of(json, "text"),
                   text_of(json, "text_hash"),
                   text_of(json, "version"),
                   text_of(json, "command"),
                   {}};
  for (const Json& row : json["rows"]) {
    if (row.is_object()) card.rows.push_back(row_of(row));
  }
  return card;
}

// Nothing where there is no file.
Result<std::optional<QualityCard>> read_card(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || !fs::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMostCardBytes), '\0');
  file.read(text.data(), kMostCardBytes);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  BUTTER_ASSIGN(QualityCard card, parse_card(path.string(), text));
  return card;
}

}  // namespace

const SchemeQuality* QualityCard::find(const std::string& kv_cache) const {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const SchemeQuality& row) { return row.kv_cache == kv_cache; });
  return found == rows.end() ? nullptr : &*found;
}

Result<std::string> model_fingerprint(const std::string& model) {
  BUTTER_ASSIGN(const std::string path, resolve_model(model));
  BUTTER_ASSIGN(const std::vector<fs::path> files, weight_files(path));
  Hasher hasher;
  for (const fs::path& file : files) BUTTER_TRY(add_file(file, hasher));
  return "xxh3-ends:" + hasher.digest();
}

std::string text_fingerprint(std::span<const NamedText> texts) {
  Hasher hasher;
  for (const NamedText& text : texts) hasher.add(text.text);
  return "xxh3:" + hasher.digest();
}

Result<std::string> quality_card_path(const std::string& model) {
  BUTTER_ASSIGN(const Places places, places_of(model));
  BUTTER_ASSIGN(const fs::path path, writable_place(places));
  return path.string();
}

Result<std::string> write_quality_card(const std::string& model, QualityCard card) {
  BUTTER_ASSIGN(const Places places, places_of(model));
  BUTTER_ASSIGN(const fs::path path, writable_place(places));
  card.model = places.model;
  card.model_hash = places.hash;
  BUTTER_TRY(write_whole_file(path, card_text(card)));
  return path.string();
}

Result<std::optional<QualityCard>> read_quality_card(const std::string& model) {
  BUTTER_ASSIGN(const Places places, places_of(model));
  for (const fs::path& path : {places.beside, places.in_cache}) {
    BUTTER_ASSIGN(std::optional<QualityCard> card, read_card(path));
    if (card && card->model_hash == places.hash) return card;
  }
  return std::nullopt;
}

}  // namespace butter
