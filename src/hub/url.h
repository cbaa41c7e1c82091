// Url: http and https addresses, taken apart; redirects come from servers, so what is odd is refused.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace butter {

struct Url {
  bool is_https = true;
  std::string host;  // an IPv6 address stands in brackets
  int port = 443;
  std::string path;  // begins with "/"; percent-encoded, with the query

  std::string origin() const;  // https://host:port
};

Result<Url> parse_url(std::string_view text);

// Where a Location header leads to from `base`: an address, or a path of the same server. From https to
// http is an error.
Result<Url> resolve_location(const Url& base, std::string_view location);

// `text` with every byte but unreserved ones, and those in `kept`, as %NN.
std::string percent_encoded(std::string_view text, std::string_view kept = "");

}  // namespace butter
