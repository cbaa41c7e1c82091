#include "hub/hub_client.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/printable.h"
#include "hub/hub_cache.h"

namespace butter {
namespace {

constexpr size_t kMostListingBytes = size_t{32} << 20;
constexpr int kDeepestJson = 32;
constexpr size_t kMostFiles = 20000;
constexpr int64_t kMostFileBytes = int64_t{1} << 42;

// nlohmann's parser is given no more depth than this, whatever a server sends.
bool is_nested_deeper(std::string_view json, int most) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (in_string && c == '\\') {
      ++at;
      continue;
    }
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if ((c == '{' || c == '[') && ++depth > most) return true;
    if (c == '}' || c == ']') --depth;
  }
  return false;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

// W/"abc" and "abc" are abc; nothing where that cannot be a file's name.
std::optional<std::string> etag_name(std::string_view text) {
  if (text.substr(0, 2) == "W/") text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (text.empty() || text.size() > 128 || !std::all_of(text.begin(), text.end(), is_plain))
    return std::nullopt;
  return std::string(text);
}

Result<HubListing> parse_listing(const std::string& text, const std::string& source) {
  if (is_nested_deeper(text, kDeepestJson))
    return fail(StatusCode::kLimit, "{} is nested deeper than {}", source, kDeepestJson);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("sha") || !json["sha"].is_string() || !json.contains("siblings") ||
      !json["siblings"].is_array()) {
    return fail(StatusCode::kCorrupt, "{} is not what is expected: an object with sha and siblings", source);
  }
  HubListing listing{json["sha"].get<std::string>(), {}};
  if (!is_commit(listing.commit))
    return fail(StatusCode::kCorrupt, "{} has the commit \"{}\"; 40 hexadecimal digits are expected", source,
                printable(listing.commit));
  if (json["siblings"].size() > kMostFiles)
    return fail(StatusCode::kLimit, "{} has {} files; at most {} are read", source, json["siblings"].size(),
                kMostFiles);
  std::set<std::string> names;
  for (const auto& sibling : json["siblings"]) {
    if (!sibling.is_object() || !sibling.contains("rfilename") || !sibling["rfilename"].is_string())
      return fail(StatusCode::kCorrupt, "{} has a file without a name", source);
    const std::string name = sibling["rfilename"].get<std::string>();
    if (!is_safe_file_name(name))
      return fail(StatusCode::kCorrupt,
                  "{} names a file \"{}\"; a relative path that stays below is expected", source,
                  printable(name));
    names.insert(name);
  }
  listing.names.assign(names.begin(), names.end());
  return listing;
}

// Of "bytes 0-99/1000", whether it is what was asked for.
bool is_expected_range(const std::string& header, int64_t from, int64_t end, int64_t total) {
  return header == fmt::format("bytes {}-{}/{}", from, end - 1, total);
}

}  // namespace

// Counts the attempts at one request, and waits before each but the first.
class HubClient::Attempts {
 public:
  Attempts(const HubServer& server, PullState& state) : server_(server), state_(state) {}
  // Whether to try again after this reply; waits before it says so.
  bool again(const HttpReply& reply) {
    const bool is_busy = reply.status == 408 || reply.status == 429 || reply.status >= 500;
    if (!(reply.problem.empty() ? is_busy : reply.may_pass) || ++failed_ >= server_.most_attempts)
      return false;
    int64_t wait = server_.first_wait_ms << std::min(failed_ - 1, 16);
    if (const auto seconds = number(reply.header("retry-after")))
      wait = std::min<int64_t>(*seconds, 3600) * 1000;
    return state_.sleep(std::min(wait, server_.longest_wait_ms));
  }
  void made_progress() { failed_ = 0; }

 private:
  const HubServer& server_;
  PullState& state_;
  int failed_ = 0;
};

HubClient::HubClient(const HubServer& server, PullState& state)
    : server_(server), state_(state), http_(server.endpoint, server.token, state) {}

Url HubClient::file_url(const ModelReference& reference, const std::string& commit,
                        const std::string& name) const {
  Url url = server_.endpoint;
  url.path += fmt::format("{}/resolve/{}/{}", reference.repository, commit, percent_encoded(name, "/"));
  return url;
}

// Why an answer is not the one that is wanted: what a user can do about it.
Error HubClient::refusal(const HttpReply& reply, const std::string& repository,
                         const std::string& what) const {
  if (state_.cancelled()) return pull_cancelled();
  const std::string& host = reply.url_host;
  const std::string& own = server_.endpoint.host;
  if (!reply.problem.empty())
    return Error(StatusCode::kIo, fmt::format("{}: {}: {}", what, host, reply.problem));
  if (host == own && reply.status == 401 && server_.token.empty()) {
    return Error(
        StatusCode::kNotFound,
        fmt::format("{} has no {} that can be read without a token: the name is wrong, or the model is "
                    "private or gated, and HF_TOKEN is to hold the token of an account that may read it",
                    host, repository));
  }
  if (host == own && reply.status == 401) {
    return Error(
        StatusCode::kInvalidArgument,
        fmt::format("{} does not accept the token for {}: it is no longer valid, or its account may not "
                    "read the model, or there is none of that name",
                    host, repository));
  }
  if (host == own && reply.status == 403) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("{} refuses {}: the account of {} must be granted access on the model's page",
                             host, repository, server_.token.empty() ? "a token in HF_TOKEN" : "the token"));
  }
  if (reply.status == 404) return Error(StatusCode::kNotFound, fmt::format("{} has no {}", host, what));
  return Error(StatusCode::kIo, fmt::format("{}: {} answers {}{}; 200 is expected", what, host, reply.status,
                                            reply.status == 429 ? " (too many requests)" : ""));
}

Result<std::string> HubClient::get_text(const Url& url, const std::string& repository,
                                        const std::string& what) {
  for (Attempts attempts(server_, state_);;) {
    std::string text;
    const HttpReply reply = http_.get(url, "", [&](const HttpReply&, std::string_view bytes) {
      text += bytes;
      return text.size() <= kMostListingBytes;
    });
    if (text.size() > kMostListingBytes)
      return fail(StatusCode::kLimit, "{} is longer than {} bytes", what, kMostListingBytes);
    if (reply.problem.empty() && reply.status == 200) return text;
    if (!attempts.again(reply)) return fail(refusal(reply, repository, what));
  }
}

Result<HubListing> HubClient::list(const ModelReference& reference) {
  Url url = server_.endpoint;
  url.path +=
      fmt::format("api/models/{}/revision/{}", reference.repository, percent_encoded(reference.revision));
  const std::string what = fmt::format("{}, revision {}", reference.repository, reference.revision);
  BUTTER_ASSIGN(const std::string text, get_text(url, reference.repository, what));
  return parse_listing(text, "the list of files of " + what);
}

Result<HubFile> HubClient::look_up(const ModelReference& reference, const std::string& commit,
                                   const std::string& name) {
  const std::string what = fmt::format("{} in {}", printable(name), reference.repository);
  HttpReply reply;
  for (Attempts attempts(server_, state_);;) {
    reply = http_.head(file_url(reference, commit, name));
    if (reply.problem.empty() && (reply.status == 200 || reply.is_redirect())) break;
    if (!attempts.again(reply)) return fail(refusal(reply, reference.repository, what));
  }
  if (const std::string found = reply.header("x-repo-commit"); !found.empty() && found != commit)
    return fail(StatusCode::kCorrupt, "{} is of commit {}; {} is expected", what, printable(found), commit);
  const bool is_linked = !reply.header("x-linked-etag").empty();
  const auto etag = etag_name(reply.header(is_linked ? "x-linked-etag" : "etag"));
  if (!etag)
    return fail(StatusCode::kCorrupt, "{} has the ETag \"{}\"; a hash is expected", what,
                printable(reply.header(is_linked ? "x-linked-etag" : "etag")));
  const bool has_size = !reply.header("x-linked-size").empty();
  const auto bytes = number(reply.header(has_size ? "x-linked-size" : "content-length"));
  if (!bytes || *bytes > kMostFileBytes || (reply.is_redirect() && !has_size))
    return fail(StatusCode::kCorrupt, "{} comes without a length, or with one above {} bytes", what,
                kMostFileBytes);
  return HubFile{name, *bytes, *etag};
}

HttpReply HubClient::fetch_once(const Url& url, const HubFile& file, Part& part) {
  const std::string range = part.whole ? "" : fmt::format("bytes={}-{}", part.from, part.end - 1);
  const int64_t from = part.from;
  const bool takes_whole = from == 0 && part.end == file.bytes;
  std::string wrong;
  HttpReply reply = http_.get(url, range, [&](const HttpReply& head, std::string_view bytes) {
    if (!takes_whole && head.status == 200) return false;
    if (head.status == 206 && !is_expected_range(head.header("content-range"), from, part.end, file.bytes)) {
      wrong = fmt::format("the range is \"{}\"; {}-{} of {} are expected",
                          printable(head.header("content-range")), from, part.end - 1, file.bytes);
    } else if (static_cast<int64_t>(bytes.size()) > part.end - part.from) {
      wrong = fmt::format("more bytes come than the {} that were told", file.bytes);
    }
    if (!wrong.empty() || !part.sink(bytes)) return false;
    part.from += static_cast<int64_t>(bytes.size());
    return true;
  });
  if (!wrong.empty()) {
    reply.problem = wrong;
    reply.may_pass = false;
  } else if (reply.problem.empty() && (reply.status == 200 || reply.status == 206) && part.from < part.end) {
    // A body that ends too early looks whole where the server told a length as short.
    reply.problem = fmt::format("{} of {} bytes came", part.from, part.end);
    reply.may_pass = true;
  }
  return reply;
}

Result<HubClient::Fetched> HubClient::fetch(const ModelReference& reference, const std::string& commit,
                                            const HubFile& file, Part part) {
  const Url url = file_url(reference, commit, file.name);
  const std::string what = fmt::format("{} in {}", printable(file.name), reference.repository);
  for (Attempts attempts(server_, state_);;) {
    const int64_t before = part.from;
    const HttpReply reply = fetch_once(url, file, part);
    if (reply.problem.empty() && part.from == part.end) return Fetched::kAll;
    const bool took_whole = before == 0 && part.end == file.bytes;
    if (reply.status == 200 && !took_whole && !state_.cancelled()) return Fetched::kRangeIgnored;
    if (part.from > before && !part.whole) attempts.made_progress();
    if (!attempts.again(reply)) return fail(refusal(reply, reference.repository, what));
    if (!part.whole) continue;
    part.from = 0;
    if (!part.restart()) return fail(pull_cancelled());
  }
}

}  // namespace butter
