#include "hub/http_client.h"

#include <httplib.h>

#include <algorithm>
#include <cctype>

#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr int kMostRedirects = 8;
constexpr size_t kMostServers = 8;
constexpr size_t kMostIgnoredBytes = 65536;
constexpr int kConnectSeconds = 15;
constexpr int kReadSeconds = 30;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void take_head(const httplib::Response& response, HttpReply& reply) {
  reply.status = response.status;
  for (const auto& [name, value] : response.headers) reply.headers.emplace(lower(name), value);
}

std::string words_for(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "no connection can be made";
    case httplib::Error::ConnectionTimeout:
      return "the connection takes too long";
    case httplib::Error::Read:
      return "the connection broke off, or nothing came for too long";
    case httplib::Error::Write:
      return "the connection broke off";
    case httplib::Error::SSLConnection:
      return "no encrypted connection can be made";
    case httplib::Error::SSLLoadingCerts:
      return "the system's certificates cannot be read";
    case httplib::Error::SSLServerVerification:
      return "its certificate is not trusted";
    case httplib::Error::Canceled:
      return "stopped";
    default:
      return "the request failed (" + httplib::to_string(error) + ")";
  }
}

bool may_pass(httplib::Error error) {
  return error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout ||
         error == httplib::Error::Read || error == httplib::Error::Write ||
         error == httplib::Error::SSLConnection;
}

void take_error(const httplib::Result& result, HttpReply& reply) {
  if (result) return;
  reply.problem = words_for(result.error());
  reply.may_pass = may_pass(result.error());
}

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

bool HttpReply::is_redirect() const {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

HttpClient::HttpClient(const Url& endpoint, const std::string& token, PullState& state)
    : endpoint_(endpoint), token_(token), state_(state) {
  state_.add(this);
}

HttpClient::~HttpClient() {
  state_.remove(this);
}

void HttpClient::interrupt() {
  const std::lock_guard lock(mutex_);
  for (const auto& [origin, client] : clients_) client->stop();
}

httplib::Client& HttpClient::client_for(const Url& url) {
  const std::lock_guard lock(mutex_);
  const std::string origin = url.origin();
  if (clients_.count(origin) == 0 && clients_.size() >= kMostServers) clients_.clear();
  std::unique_ptr<httplib::Client>& client = clients_[origin];
  if (client) return *client;
  client = std::make_unique<httplib::Client>(origin);
  client->set_keep_alive(true);
  client->set_follow_location(false);  // follow() decides who gets the token
  client->set_url_encode(false);       // signed addresses must stay as they are
  client->set_decompress(false);
  client->set_connection_timeout(kConnectSeconds);
  client->set_read_timeout(kReadSeconds);
  client->set_write_timeout(kReadSeconds);
  return *client;
}

HttpReply HttpClient::follow(Url url, bool to_other_hosts, const Exchange& exchange) {
  for (int redirects = 0;; ++redirects) {
    HttpReply reply = exchange(client_for(url), url);
    reply.url_host = url.host;
    if (!reply.problem.empty() || !reply.is_redirect()) return reply;
    const auto next = resolve_location(url, reply.header("location"));
    if (next && !to_other_hosts && next->origin() != url.origin()) return reply;
    if (next && redirects < kMostRedirects) {
      url = *next;
      continue;
    }
    reply.problem = next ? fmt::format("it redirects more than {} times", kMostRedirects)
                         : "it redirects wrongly: " + next.error().message();
    return reply;
  }
}

HttpReply HttpClient::get(const Url& url, const std::string& range, const BodySink& sink) {
  return follow(url, true, [&](httplib::Client& client, const Url& at) {
    HttpReply reply;
    size_t ignored = 0;
    const auto on_head = [&](const httplib::Response& response) {
      take_head(response, reply);
      return !state_.cancelled();
    };
    const auto on_body = [&](const char* data, size_t bytes) {
      if (state_.cancelled()) return false;
      if (reply.status == 200 || reply.status == 206) return sink(reply, std::string_view(data, bytes));
      return (ignored += bytes) <= kMostIgnoredBytes;
    };
    httplib::Headers headers = {{"User-Agent", "butter"}, {"Accept-Encoding", "identity"}};
    if (!token_.empty() && is_own(at)) headers.emplace("Authorization", "Bearer " + token_);
    if (!range.empty()) headers.emplace("Range", range);
    const httplib::Result result = client.Get(at.path, headers, on_head, on_body);
    // An answer that is not wanted was told by its head, whatever became of its body.
    if (reply.status == 0 || reply.status == 200 || reply.status == 206) take_error(result, reply);
    return reply;
  });
}

HttpReply HttpClient::head(const Url& url) {
  return follow(url, false, [&](httplib::Client& client, const Url& at) {
    HttpReply reply;
    httplib::Headers headers = {{"User-Agent", "butter"}, {"Accept-Encoding", "identity"}};
    if (!token_.empty() && is_own(at)) headers.emplace("Authorization", "Bearer " + token_);
    const httplib::Result result = client.Head(at.path, headers);
    if (result) take_head(*result, reply);
    take_error(result, reply);
    return reply;
  });
}

}  // namespace butter
