#include "cache/cache_scheme.h"

#include <charconv>

#include "kernels/row_format.h"

namespace butter {
namespace {

constexpr std::string_view kPlain = ":plain";
constexpr std::string_view kSpan = ":span";
constexpr int64_t kMaxSpan = int64_t{1} << 20;
constexpr std::string_view kAura = "aura";

Result<const RowFormat*> require_format(std::string_view name, std::string_view text) {
  const RowFormat* format = find_row_format(name);
  if (format == nullptr) {
    return fail(
        StatusCode::kInvalidArgument,
        "--kv-cache \"{}\": there is no cache format \"{}\"; there is {}; aura3v2 and the like for keys "
        "and values, or k=FORMAT,v=FORMAT",
        text, name, row_format_names());
  }
  return format;
}

Status read_sides(std::string_view text, std::string_view whole, KvScheme& scheme) {
  const size_t comma = text.find(',');
  const std::string_view key = text.substr(0, comma);
  const std::string_view value =
      comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  if (key.substr(0, 2) != "k=" || value.substr(0, 2) != "v=") {
    return fail(StatusCode::kInvalidArgument,
                "--kv-cache \"{}\" is not FORMAT or k=FORMAT,v=FORMAT; there is {}", whole,
                row_format_names());
  }
  BUTTER_ASSIGN(scheme.key, require_format(key.substr(2), whole));
  BUTTER_ASSIGN(scheme.value, require_format(value.substr(2), whole));
  return {};
}

// Takes ":plain" and ":spanN" off the end of the text.
Status read_suffixes(std::string_view& text, std::string_view whole, KvScheme& scheme) {
  const size_t span = text.rfind(kSpan);
  if (span != std::string_view::npos) {
    const std::string_view digits = text.substr(span + kSpan.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), scheme.span);
    if (error != std::errc() || end != digits.data() + digits.size() || scheme.span < kPageRows ||
        scheme.span > kMaxSpan || scheme.span % kPageRows != 0) {
      return fail(StatusCode::kInvalidArgument,
                  "--kv-cache \"{}\": the prefill span is \"{}\"; a multiple of {} up to {} is expected",
                  whole, digits, kPageRows, kMaxSpan);
    }
    text.remove_suffix(text.size() - span);
  }
  if (text.size() > kPlain.size() && text.substr(text.size() - kPlain.size()) == kPlain) {
    scheme.plain = true;
    text.remove_suffix(kPlain.size());
  }
  return {};
}

bool is_aura(const RowFormat& format) {
  return std::string_view(format.name).substr(0, kAura.size()) == kAura;
}

}  // namespace

Result<KvScheme> parse_scheme(std::string_view whole, DType raw) {
  KvScheme scheme;
  scheme.raw = raw;
  std::string_view text = whole;
  BUTTER_TRY(read_suffixes(text, whole, scheme));
  // aura{K}v{V}
  const bool both =
      text.size() == kAura.size() + 3 && text.substr(0, kAura.size()) == kAura && text[5] == 'v';
  if (text.find('=') != std::string_view::npos) {
    BUTTER_TRY(read_sides(text, whole, scheme));
  } else if (both) {
    BUTTER_ASSIGN(scheme.key, require_format(std::string(kAura) + text[4], whole));
    BUTTER_ASSIGN(scheme.value, require_format(std::string(kAura) + text[6], whole));
  } else {
    BUTTER_ASSIGN(scheme.key, require_format(text, whole));
    scheme.value = scheme.key;
  }
  if ((scheme.plain || scheme.span > kPageRows) && !scheme.seals()) {
    return fail(StatusCode::kInvalidArgument,
                "--kv-cache \"{}\": the raw cache seals nothing that :plain or :span could be about", whole);
  }
  return scheme;
}

std::string scheme_name(const KvScheme& scheme) {
  std::string name;
  if (is_aura(*scheme.key) && is_aura(*scheme.value)) {
    name = fmt::format("aura{}v{}", scheme.key->bits, scheme.value->bits);
  } else if (scheme.key == scheme.value) {
    name = scheme.key->name;
  } else {
    name = fmt::format("k={},v={}", scheme.key->name, scheme.value->name);
  }
  if (scheme.plain) name += kPlain;
  if (scheme.span > kPageRows) name += fmt::format("{}{}", kSpan, scheme.span);
  return name;
}

const std::vector<std::string>& scheme_choices() {
  static const std::vector<std::string> choices = {"raw",     "affine8", "aura8v8", "affine6",
                                                   "aura8v4", "affine4", "aura4v4", "aura3v3",
                                                   "aura4v2", "aura3v2", "aura2v2"};
  return choices;
}

}  // namespace butter
