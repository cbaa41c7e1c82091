#include "cache/cache_scheme.h"

#include "kernels/row_format.h"

namespace butter {
namespace {

Result<const RowFormat*> require_format(std::string_view name, std::string_view text) {
  const RowFormat* format = find_row_format(name);
  if (format == nullptr) {
    return fail(StatusCode::kInvalidArgument,
                "--kv-cache \"{}\": there is no cache format \"{}\"; there is {}", text, name,
                row_format_names());
  }
  return format;
}

}  // namespace

Result<KvScheme> parse_scheme(std::string_view text, DType raw) {
  KvScheme scheme;
  scheme.raw = raw;
  if (text.find('=') == std::string_view::npos) {
    BUTTER_ASSIGN(scheme.key, require_format(text, text));
    scheme.value = scheme.key;
    return scheme;
  }
  const size_t comma = text.find(',');
  const std::string_view key = text.substr(0, comma);
  const std::string_view value =
      comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  if (key.substr(0, 2) != "k=" || value.substr(0, 2) != "v=") {
    return fail(StatusCode::kInvalidArgument,
                "--kv-cache \"{}\" is not FORMAT or k=FORMAT,v=FORMAT; there is {}", text,
                row_format_names());
  }
  BUTTER_ASSIGN(scheme.key, require_format(key.substr(2), text));
  BUTTER_ASSIGN(scheme.value, require_format(value.substr(2), text));
  return scheme;
}

std::string scheme_name(const KvScheme& scheme) {
  if (scheme.key == scheme.value) return scheme.key->name;
  return fmt::format("k={},v={}", scheme.key->name, scheme.value->name);
}

}  // namespace butter
