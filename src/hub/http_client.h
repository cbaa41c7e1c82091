// HttpClient: requests to a hub over HTTP and HTTPS, its redirects followed.
//
// One thread uses it at a time; a cancelled PullState ends a request within about a second. Certificates are
// checked, against $SSL_CERT_FILE or the system's. The token goes to the endpoint's own server and to no
// other. Proxies are those of the environment (https_proxy, no_proxy).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "hub/pull_state.h"
#include "hub/url.h"

namespace butter {

struct HttpReply {
  int status = 0;                              // 0: no answer came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string url_host;                        // who answered, after redirects
  std::string problem;                         // why it is not a whole answer; empty: it is one
  bool may_pass = false;                       // of the problem: another attempt may go better

  // "" where it is missing.
  std::string header(const std::string& name) const;
  bool is_redirect() const;
};

class HttpClient {
 public:
  // `state` outlives the client.
  HttpClient(Url endpoint, std::string token, PullState& state);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Takes the body of a 200 or 206 as it comes; returns false to stop, which is a problem "stopped". The
  // bodies of other answers are passed over.
  using BodySink = std::function<bool(const HttpReply& head, std::string_view bytes)>;

  // `range` is the value of a Range header, or empty.
  HttpReply get(const Url& url, const std::string& range, const BodySink& sink);
  // Follows redirects on the same server only, and only up to the answer that says what a file is (its
  // X-Linked headers): that is the one which leads to the storage.
  HttpReply head(const Url& url);

 private:
  struct Transfer;
  struct Request {
    bool is_head = false;
    std::string range;
    BodySink sink;
    std::function<bool(const HttpReply& reply, const Url& from, const Url& to)> follows;
  };
  HttpReply follow(Url url, const Request& request);
  HttpReply send_once(const Url& url, const Request& request);

  const Url endpoint_;
  const std::string token_;
  PullState& state_;
  void* curl_;  // keeps connections open from one request to the next
};

}  // namespace butter
