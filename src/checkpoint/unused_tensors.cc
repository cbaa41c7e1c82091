#include "checkpoint/unused_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace butter {
namespace {

struct UnusedKind {
  const char* name;                     // of its tensors, for people
  std::vector<std::string_view> parts;  // of their names: runs between dots
};

const std::vector<UnusedKind>& unused_kinds() {
  static const std::vector<UnusedKind> kinds = {{"vision",
                                                 {"visual", "vision_tower", "vision_model", "vision_adapter",
                                                  "vision_projection", "multi_modal_projector"}},
                                                {"audio", {"audio_tower"}},
                                                {"draft", {"mtp"}},
                                                {"rope", {"rotary_emb.inv_freq"}}};
  return kinds;
}

// Whether `part` stands in a name between dots or its ends.
bool has_part(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

const UnusedKind* find_kind(std::string_view name) {
  for (const UnusedKind& kind : unused_kinds()) {
    const bool is_one = std::any_of(kind.parts.begin(), kind.parts.end(),
                                    [&](std::string_view part) { return has_part(name, part); });
    if (is_one) return &kind;
  }
  return nullptr;
}

// In units of 10^9 and so on.
std::string decimal_bytes(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e5) return fmt::format("{:.1f} kB", value / 1e3);
  return value < 1e8 ? fmt::format("{:.1f} MB", value / 1e6) : fmt::format("{:.1f} GB", value / 1e9);
}

}  // namespace

bool is_unused_kind(std::string_view name) {
  return find_kind(name) != nullptr;
}

std::optional<std::string> describe_unused(const TensorTable& table) {
  std::string text;
  for (const UnusedKind& kind : unused_kinds()) {
    uint64_t count = 0, bytes = 0;
    for (const TensorEntry& entry : table.entries()) {
      if (find_kind(entry.name) != &kind) continue;
      ++count;
      bytes += entry.bytes;
    }
    if (count == 0) continue;
    text += fmt::format("{}{} {} tensor{} ({})", text.empty() ? "ignoring " : ", ", count, kind.name,
                        count > 1 ? "s" : "", decimal_bytes(bytes));
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace butter
