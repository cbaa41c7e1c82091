#include "hub/model_files.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr size_t kMostListed = 20;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_gguf(std::string_view name) {
  return ends_with(lower(name), ".gguf");
}

// A GGUF file, whole or in parts.
struct GgufFile {
  std::string first;  // the name of its only or first part
  std::vector<std::string> parts;
  size_t expected_parts = 1;
};

struct PartName {
  std::string stem;
  size_t parts;
};

// "model-00002-of-00003.gguf" is a part of "model".
std::optional<PartName> part_name(std::string_view name) {
  constexpr std::string_view kPattern = "-NNNNN-of-NNNNN.gguf";
  if (name.size() <= kPattern.size()) return std::nullopt;
  const std::string tail = lower(name.substr(name.size() - kPattern.size()));
  for (size_t i = 0; i < tail.size(); ++i) {
    const bool is_digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == 'N' ? !is_digit : tail[i] != kPattern[i]) return std::nullopt;
  }
  return PartName{std::string(name.substr(0, name.size() - kPattern.size())),
                  static_cast<size_t>(std::stoul(tail.substr(10, 5)))};
}

std::vector<GgufFile> gguf_files(const std::vector<std::string>& names) {
  std::map<std::string, GgufFile> files;
  for (const std::string& name : names) {
    if (!is_gguf(name)) continue;
    const auto part = part_name(name);
    GgufFile& file = files[part ? fmt::format("{}/{}", part->stem, part->parts) : name];
    if (part) file.expected_parts = part->parts;
    file.parts.push_back(name);
  }
  std::vector<GgufFile> result;
  for (auto& [key, file] : files) {
    std::sort(file.parts.begin(), file.parts.end());
    file.first = file.parts.front();
    result.push_back(std::move(file));
  }
  return result;
}

// Projectors of images and sound, which lie beside many models: never what is meant unless named.
bool is_projector(const GgufFile& file) {
  return lower(file.first).find("mmproj") != std::string::npos;
}

// Whether `tag` stands in `name` as a word: Q4_K does not stand in Q4_K_M, nor Q4_XS in IQ4_XS.
bool has_tag(const std::string& name, const std::string& tag) {
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  for (size_t at = name.find(tag); at != std::string::npos; at = name.find(tag, at + 1)) {
    const size_t end = at + tag.size();
    const bool begins = at == 0 || !is_letter(static_cast<unsigned char>(name[at - 1]));
    const bool stops =
        end == name.size() || (!is_letter(static_cast<unsigned char>(name[end])) && name[end] != '_');
    if (begins && stops) return true;
  }
  return false;
}

std::string listed(const std::vector<GgufFile>& files) {
  if (files.empty()) return "no GGUF file";
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kMostListed); ++i)
    text += (i == 0 ? "" : ", ") + printable(files[i].first, 200);
  return files.size() > kMostListed ? text + fmt::format(" and {} more", files.size() - kMostListed) : text;
}

Result<ModelFiles> whole(const GgufFile& file, const std::string& source) {
  if (file.parts.size() != file.expected_parts) {
    return fail(StatusCode::kNotFound, "{} has {} of the {} parts of {}", source, file.parts.size(),
                file.expected_parts, printable(file.first, 200));
  }
  return ModelFiles{file.parts, file.first};
}

Result<ModelFiles> named_file(const std::vector<GgufFile>& files, const std::string& wanted,
                              const std::string& source) {
  std::vector<GgufFile> matching;
  for (const GgufFile& file : files) {
    if (std::find(file.parts.begin(), file.parts.end(), wanted) != file.parts.end())
      return whole(file, source);
    if (!is_projector(file) && has_tag(lower(file.first), lower(wanted))) matching.push_back(file);
  }
  if (matching.size() == 1) return whole(matching[0], source);
  if (matching.empty())
    return fail(StatusCode::kNotFound, "{} has no GGUF file {}; there is: {}", source, printable(wanted, 200),
                listed(files));
  return fail(StatusCode::kInvalidArgument, "{} names {} GGUF files of {}: {}", printable(wanted, 200),
              matching.size(), source, listed(matching));
}

bool describes_model(const std::string& name) {
  static const std::set<std::string> kNames = {
      "config.json", "generation_config.json",  "vocab.json",       "merges.txt",
      "vocab.txt",   "special_tokens_map.json", "added_tokens.json"};
  return kNames.count(name) != 0 || starts_with(name, "tokenizer") || starts_with(name, "chat_template") ||
         starts_with(name, "additional_chat_templates/");
}

// The files of a Hugging Face folder; empty where it is none.
std::vector<std::string> folder_files(const std::vector<std::string>& names) {
  std::vector<std::string> weights, files;
  bool has_config = false;
  for (const std::string& name : names) {
    const bool is_top = name.find('/') == std::string::npos;
    if (is_top && ends_with(name, ".safetensors")) weights.push_back(name);
    if (describes_model(name) || (is_top && ends_with(name, ".safetensors.index.json")))
      files.push_back(name);
    has_config = has_config || name == "config.json";
  }
  if (!has_config || weights.empty()) return {};
  // Some repositories hold the weights twice, the second time in their maker's own layout (consolidated.*).
  const auto is_usual = [](const std::string& name) { return starts_with(name, "model"); };
  const bool some_are_usual = std::any_of(weights.begin(), weights.end(), is_usual);
  for (const std::string& name : weights) {
    if (!some_are_usual || is_usual(name)) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<ModelFiles> choose_model_files(const std::vector<std::string>& names, const std::string& file,
                                      const std::string& source) {
  std::vector<GgufFile> files = gguf_files(names);
  if (!file.empty()) return named_file(files, file, source);
  if (std::vector<std::string> folder = folder_files(names); !folder.empty())
    return ModelFiles{std::move(folder), ""};
  files.erase(std::remove_if(files.begin(), files.end(), is_projector), files.end());
  if (files.size() == 1) return whole(files[0], source);
  if (files.empty())
    return fail(
        StatusCode::kNotFound,
        "{} holds neither a GGUF file nor config.json with safetensors files: no model that Butter reads",
        source);
  return fail(StatusCode::kInvalidArgument, "{} holds {} GGUF files; one is to be named, as in {}:{}: {}",
              source, files.size(), source, files[0].first, listed(files));
}

}  // namespace butter
