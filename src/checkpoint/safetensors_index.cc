#include "checkpoint/safetensors_index.h"

#include <filesystem>
#include <map>

#include "checkpoint/attributes.h"
#include "checkpoint/printable.h"
#include "checkpoint/regular_file.h"
#include "checkpoint/safetensors.h"

namespace butter {
namespace {

// As for the header of one safetensors file, which says more of each tensor.
constexpr Attributes::JsonLimits kIndexLimits{
    .max_bytes = size_t{100'000'000}, .max_depth = 8, .max_values = int64_t{1} << 20};

// The tensors that the index promises, by shard.
using Promises = std::map<std::string, std::vector<std::string>, std::less<>>;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<Promises> read_promises(const Attributes& index) {
  BUTTER_ASSIGN(const Attributes map, index.get_object("weight_map"));
  Promises promises;
  for (std::string_view tensor : map.keys()) {
    BUTTER_ASSIGN(const std::string_view shard, map.get_string(tensor));
    if (!is_plain_name(shard)) {
      return fail(StatusCode::kCorrupt, "{} is \"{}\"; the plain name of a file beside the index is expected",
                  printable(map.full_name(tensor)), printable(shard));
    }
    promises[std::string(shard)].emplace_back(tensor);
    if (promises.size() <= kMaxWeightFiles) continue;
    return fail(StatusCode::kLimit, "weight_map names more than {} files; at most {} are read",
                kMaxWeightFiles, kMaxWeightFiles);
  }
  if (promises.empty())
    return fail(StatusCode::kCorrupt, "weight_map is empty; a file for each tensor is expected");
  return promises;
}

Result<WeightFile> open_shard(const std::string& path, const std::vector<std::string>& promised) {
  BUTTER_ASSIGN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
  const std::string shown = printable(path, 500);
  auto parsed = SafetensorsFile::parse(file->bytes(), file);
  if (!parsed) return fail(parsed.error().within(shown));
  const auto kept = std::make_shared<const SafetensorsFile>(*std::move(parsed));
  for (const std::string& tensor : promised) {
    if (kept->tensors().find(tensor)) continue;
    return fail(StatusCode::kCorrupt, "the index promises {} in {}, which holds {} tensors and not that one",
                printable(tensor), shown, kept->tensors().entries().size());
  }
  return WeightFile{file, kept->tensors(), kept};
}

}  // namespace

bool is_safetensors_index(const std::string& path) {
  return path.ends_with(".safetensors.index.json");
}

Result<std::vector<WeightFile>> open_safetensors_shards(const std::string& index_path) {
  const std::string shown = printable(index_path, 500);
  BUTTER_ASSIGN(const std::string text, read_text_file(index_path, kIndexLimits.max_bytes));
  auto index = Attributes::parse_json(text, "the index", kIndexLimits);
  if (!index) return fail(index.error().within(shown));
  auto promises = read_promises(*index);
  if (!promises) return fail(promises.error().within(shown));
  std::vector<WeightFile> shards;
  for (const auto& [name, tensors] : *promises) {
    auto shard = open_shard((std::filesystem::path(index_path).parent_path() / name).string(), tensors);
    if (!shard) return fail(shard.error().within(shown));
    shards.push_back(*std::move(shard));
  }
  return shards;
}

}  // namespace butter
