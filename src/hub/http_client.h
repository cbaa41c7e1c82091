// HttpClient: requests to a hub over HTTP and HTTPS, its redirects followed.
//
// One thread uses it at a time; interrupt() may come from another. Certificates are checked against the
// system's. The token goes to the endpoint's own server and to no other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "hub/pull_state.h"
#include "hub/url.h"

namespace httplib {
class Client;
}

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

class HttpClient : public Interruptible {
 public:
  // Both outlive the client.
  HttpClient(const Url& endpoint, const std::string& token, PullState& state);
  ~HttpClient() override;
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Takes the body of a 200 or 206 as it comes; returns false to stop, which is a problem "stopped". The
  // bodies of other answers are passed over.
  using BodySink = std::function<bool(const HttpReply& head, std::string_view bytes)>;

  // `range` is the value of a Range header, or empty.
  HttpReply get(const Url& url, const std::string& range, const BodySink& sink);
  // Follows redirects on the same server only: what the hub says about a file stands in the answer that
  // leads to another.
  HttpReply head(const Url& url);

  void interrupt() override;

 private:
  using Exchange = std::function<HttpReply(httplib::Client&, const Url&)>;
  HttpReply follow(Url url, bool to_other_hosts, const Exchange& exchange);
  httplib::Client& client_for(const Url& url);
  bool is_own(const Url& url) const { return url.origin() == endpoint_.origin(); }

  const Url& endpoint_;
  const std::string& token_;
  PullState& state_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<httplib::Client>> clients_;  // by origin
};

}  // namespace butter
