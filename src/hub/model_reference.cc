#include "hub/model_reference.h"

#include <algorithm>

#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr size_t kLongestName = 96;  // the hub's own bound
constexpr size_t kLongestComponent = 200;
constexpr size_t kLongestPath = 1000;
constexpr int kDeepestPath = 8;

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

bool is_repository_part(std::string_view part) {
  return !part.empty() && part.size() <= kLongestName && part.front() != '.' && part.front() != '-' &&
         part.find("..") == std::string_view::npos && part.find("--") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), is_word_character);
}

bool is_revision(std::string_view text) {
  return is_safe_file_name(text) && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c == '/' || is_word_character(c); });
}

bool is_plain_component(std::string_view component) {
  return !component.empty() && component != "." && component != ".." && component.size() <= kLongestComponent;
}

}  // namespace

std::string ModelReference::text() const {
  return repository + (file.empty() ? "" : ":" + file) + (revision == "main" ? "" : "@" + revision);
}

std::optional<ModelReference> parse_model_reference(std::string_view text) {
  ModelReference reference;
  if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
    reference.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_revision(reference.revision)) return std::nullopt;
  }
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    reference.file = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_safe_file_name(reference.file)) return std::nullopt;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || !is_repository_part(text.substr(0, slash)) ||
      !is_repository_part(text.substr(slash + 1))) {
    return std::nullopt;
  }
  reference.repository = text;
  return reference;
}

bool is_safe_file_name(std::string_view name) {
  const auto is_forbidden = [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; };
  if (name.size() > kLongestPath || !valid_utf8(name) || std::any_of(name.begin(), name.end(), is_forbidden))
    return false;
  for (int depth = 0; depth < kDeepestPath; ++depth) {
    const size_t slash = name.find('/');
    if (!is_plain_component(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
  return false;
}

}  // namespace butter
