#include "hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/check.h"
#include "hub/environment.h"

namespace butter {
namespace {

constexpr int kMostRedirects = 8;
constexpr size_t kMostIgnoredBytes = 65536;
constexpr size_t kMostHeaders = 200;
constexpr long kConnectSeconds = 15;
constexpr long kSilentSeconds = 30;
constexpr long kBufferBytes = 256 * 1024;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::string words_for(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return "there is no such host, or no network";
    case CURLE_COULDNT_CONNECT:
      return "no connection can be made";
    case CURLE_OPERATION_TIMEDOUT:
      return "nothing came for too long";
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
      return "the connection broke off";
    case CURLE_PEER_FAILED_VERIFICATION:
      return "its certificate is not trusted";
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
      return "stopped";
    default:
      return curl_easy_strerror(code);
  }
}

bool may_pass(CURLcode code) {
  static const std::vector<CURLcode> kPassing = {
      CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_OPERATION_TIMEDOUT, CURLE_PARTIAL_FILE,
      CURLE_RECV_ERROR,           CURLE_SEND_ERROR,      CURLE_GOT_NOTHING,        CURLE_SSL_CONNECT_ERROR};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

// A list of header lines, as curl takes them.
class HeaderLines {
 public:
  ~HeaderLines() { curl_slist_free_all(list_); }
  HeaderLines() = default;
  HeaderLines(const HeaderLines&) = delete;
  HeaderLines& operator=(const HeaderLines&) = delete;
  void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

void* new_handle() {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  BUTTER_CHECK(global == CURLE_OK);
  CURL* curl = curl_easy_init();
  BUTTER_CHECK(curl != nullptr);
  return curl;
}

// What holds for every request.
void set_bounds(CURL* curl) {
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  // Several requests of HTTP/2 would share one connection, and its bandwidth.
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);  // HttpClient::follow() decides who gets the token
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "butter");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  if (const std::string trusted = environment("SSL_CERT_FILE"); !trusted.empty())
    curl_easy_setopt(curl, CURLOPT_CAINFO, trusted.c_str());
}

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

bool HttpReply::is_redirect() const {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One exchange, as curl's callbacks see it.
struct HttpClient::Transfer {
  const Request& request;
  const PullState& state;
  HttpReply reply = {};
  size_t ignored_bytes = 0;

  void receive(CURL* curl) {
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
  }

  bool wants_body() const { return reply.status == 200 || reply.status == 206; }

  static size_t on_header(char* data, size_t, size_t bytes, void* self) {
    auto& [request, state, reply, ignored] = *static_cast<Transfer*>(self);
    const std::string_view line(data, bytes);
    if (line.substr(0, 5) == "HTTP/") {  // a new answer: the one before it was "100 Continue" or the like
      reply = {};
      const size_t space = line.find(' ');
      if (space != std::string_view::npos)
        reply.status = std::atoi(std::string(line.substr(space + 1, 3)).c_str());
      return bytes;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return bytes;
    if (reply.headers.size() >= kMostHeaders) return 0;
    reply.headers.emplace(lower(std::string(line.substr(0, colon))), trimmed(line.substr(colon + 1)));
    return bytes;
  }

  static size_t on_body(char* data, size_t, size_t bytes, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (transfer.state.cancelled()) return 0;
    if (transfer.wants_body()) return transfer.request.sink(transfer.reply, {data, bytes}) ? bytes : 0;
    transfer.ignored_bytes += bytes;
    return transfer.ignored_bytes <= kMostIgnoredBytes ? bytes : 0;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(self)->state.cancelled() ? 1 : 0;
  }
};

HttpClient::HttpClient(Url endpoint, std::string token, PullState& state)
    : endpoint_(std::move(endpoint)), token_(std::move(token)), state_(state), curl_(new_handle()) {}

HttpClient::~HttpClient() {
  curl_easy_cleanup(curl_);
}

HttpReply HttpClient::send_once(const Url& url, const Request& request) {
  Transfer transfer{request, state_};
  HeaderLines lines;
  lines.add("Accept-Encoding: identity");
  if (!token_.empty() && url.origin() == endpoint_.origin()) lines.add("Authorization: Bearer " + token_);
  if (!request.range.empty()) lines.add("Range: " + request.range);

  curl_easy_reset(curl_);  // options only: connections stay
  set_bounds(curl_);
  transfer.receive(curl_);
  curl_easy_setopt(curl_, CURLOPT_URL, (url.origin() + url.path).c_str());
  curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, lines.get());
  if (request.is_head) curl_easy_setopt(curl_, CURLOPT_NOBODY, 1L);
  const CURLcode code = curl_easy_perform(curl_);

  HttpReply& reply = transfer.reply;
  reply.url_host = url.host;
  // An answer that is not wanted was told by its head, whatever became of its body.
  if (code != CURLE_OK && (reply.status == 0 || transfer.wants_body())) {
    reply.problem = words_for(code);
    reply.may_pass = may_pass(code);
  }
  return std::move(reply);
}

HttpReply HttpClient::follow(Url url, const Request& request) {
  for (int redirects = 0;; ++redirects) {
    HttpReply reply = send_once(url, request);
    if (!reply.problem.empty() || !reply.is_redirect()) return reply;
    const auto next = resolve_location(url, reply.header("location"));
    if (next && !request.follows(reply, url, *next)) return reply;
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
  Request request;
  request.range = range;
  request.sink = sink;
  request.follows = [](const HttpReply&, const Url&, const Url&) { return true; };
  return follow(url, request);
}

HttpReply HttpClient::head(const Url& url) {
  Request request;
  request.is_head = true;
  request.sink = [](const HttpReply&, std::string_view) { return true; };
  request.follows = [](const HttpReply& reply, const Url& from, const Url& to) {
    const bool is_described =
        !reply.header("x-linked-etag").empty() && !reply.header("x-linked-size").empty();
    return !is_described && from.origin() == to.origin();
  };
  return follow(url, request);
}

}  // namespace butter
