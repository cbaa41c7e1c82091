#include "engine/template_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace butter {
namespace {

// Names that Hugging Face gives to templates where there are several; GGUF has them behind the key.
constexpr const char* kUsual = "default";
constexpr const char* kWithTools = "tool_use";

Result<std::optional<std::string>> text_of(const Attributes& metadata, const std::string& key) {
  if (metadata.kind(key) == AttributeKind::kAbsent) return std::optional<std::string>();
  BUTTER_ASSIGN(const std::string_view source, metadata.get_string(key));
  return std::optional<std::string>(source);
}

// A text, or a list of {"name": ..., "template": ...}.
Result<ChatTemplateSources> templates_of_json(const std::string& text, const char* file) {
  ChatTemplateSources sources;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(StatusCode::kCorrupt, "{} is no JSON object", file);
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return sources;
  if (found->is_string()) {
    sources.usual = found->get<std::string>();
    return sources;
  }
  const auto is_named = [](const nlohmann::json& entry) {
    return entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
           entry.contains("template") && entry["template"].is_string();
  };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), is_named)) {
    return fail(StatusCode::kCorrupt, "{}: chat_template is neither a text nor a list of names and templates",
                file);
  }
  for (const auto& entry : *found) {
    if (entry["name"] == kUsual) sources.usual = entry["template"].get<std::string>();
    if (entry["name"] == kWithTools) sources.with_tools = entry["template"].get<std::string>();
  }
  return sources;
}

Result<ChatTemplateSources> templates_of_gguf(const Attributes& metadata) {
  const std::string key = "tokenizer.chat_template";
  ChatTemplateSources sources;
  BUTTER_ASSIGN(sources.usual, text_of(metadata, key));
  BUTTER_ASSIGN(sources.with_tools, text_of(metadata, key + "." + kWithTools));
  return sources;
}

}  // namespace

Result<ChatTemplateSources> load_chat_templates(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) return templates_of_gguf(checkpoint.config());
  ChatTemplateSources sources;
  BUTTER_ASSIGN(sources.usual, checkpoint.sidecar("chat_template.jinja"));
  if (sources.usual) return sources;
  for (const char* file : {"chat_template.json", "tokenizer_config.json"}) {
    BUTTER_ASSIGN(const auto text, checkpoint.sidecar(file));
    if (!text) continue;
    BUTTER_ASSIGN(sources, templates_of_json(*text, file));
    if (sources.usual || sources.with_tools) break;
  }
  return sources;
}

}  // namespace butter
