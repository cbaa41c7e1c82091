#include "hub/url.h"

#include <algorithm>
#include <charconv>

#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr size_t kLongestUrl = 8000;  // cpp-httplib's bound of a header

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool is_visible(char c) {
  return c > ' ' && c <= '~';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_host_character(char c) {
  return is_letter(c) || c == '.' || c == '-' || c == '_' || c == '[' || c == ']' || c == ':';
}

tl::unexpected<Error> no_url(std::string_view text) {
  return fail(StatusCode::kInvalidArgument, "\"{}\" is no address; https://host/path is expected",
              printable(text, 200));
}

}  // namespace

std::string Url::origin() const {
  return fmt::format("{}://{}:{}", is_https ? "https" : "http", host, port);
}

Result<Url> parse_url(std::string_view text) {
  const std::string_view whole = text;
  Url url;
  url.is_https = starts_with(text, "https://");
  if (text.size() > kLongestUrl || !std::all_of(text.begin(), text.end(), is_visible) ||
      !(url.is_https || starts_with(text, "http://"))) {
    return no_url(whole);
  }
  text.remove_prefix(url.is_https ? 8 : 7);
  const size_t end = std::min(text.find_first_of("/?#"), text.size());
  std::string_view authority = text.substr(0, end);
  std::string_view rest = text.substr(end);
  rest = rest.substr(0, rest.find('#'));
  url.path = rest;
  if (!starts_with(rest, "/")) url.path.insert(0, 1, '/');
  url.port = url.is_https ? 443 : 80;
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const std::string_view port = authority.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (read.ec != std::errc() || read.ptr != port.data() + port.size() || url.port < 1 || url.port > 65535)
      return no_url(whole);
    authority = authority.substr(0, colon);
  }
  if (authority.empty() || !std::all_of(authority.begin(), authority.end(), is_host_character))
    return no_url(whole);
  url.host = authority;
  return url;
}

Result<Url> resolve_location(const Url& base, std::string_view location) {
  if (starts_with(location, "//")) {
    return resolve_location(base, (base.is_https ? "https:" : "http:") + std::string(location));
  }
  if (starts_with(location, "/")) return parse_url(base.origin() + std::string(location));
  BUTTER_ASSIGN(Url url, parse_url(location));
  if (base.is_https && !url.is_https)
    return fail(StatusCode::kInvalidArgument, "{} leads from https to http, to {}", base.host, url.host);
  return url;
}

std::string percent_encoded(std::string_view text, std::string_view kept) {
  std::string result;
  for (const char c : text) {
    const bool is_plain = is_letter(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
                          kept.find(c) != std::string_view::npos;
    if (is_plain) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

}  // namespace butter
