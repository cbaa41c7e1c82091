// FakeHub: a Hugging Face hub of one repository, on 127.0.0.1, at a port that the system picks.
//
// Serves well unless `on_request` says otherwise; keeps what was asked. Files and `on_request` are set before
// the first request.
#pragma once

#include <fmt/format.h>
#include <httplib.h>
#include <openssl/sha.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace butter {

class FakeHub {
 public:
  struct File {
    std::string content;
    bool is_large = true;  // in large storage: known by its SHA-256, and in X-Linked headers
  };
  struct Asked {
    std::string method, path, target, authorization, range;  // the target is the path as it was sent
  };

  inline static const std::string kRepository = "org/tiny";
  inline static const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

  std::map<std::string, File> files;
  std::string revision = "main";
  std::string listing;  // in place of the true one
  // Called first; true: it has answered.
  std::function<bool(const httplib::Request&, httplib::Response&)> on_request;

  FakeHub() {
    ::setenv("no_proxy", "127.0.0.1", 1);  // what the user has set must not lead elsewhere
    server_.set_keep_alive_timeout(1);
    server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      note(request);
      if (!on_request || !on_request(request, response)) answer(request, response);
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~FakeHub() {
    server_.stop();
    thread_.join();
  }
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}", port_); }

  std::vector<Asked> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // Requests for contents, not for what a file is.
  std::vector<Asked> downloads() const {
    std::vector<Asked> result;
    for (const Asked& one : asked()) {
      if (one.method == "GET" && is_file(one.path)) result.push_back(one);
    }
    return result;
  }
  static bool is_file(const std::string& path) { return path.find("/resolve/") != std::string::npos; }

  static std::string etag(const File& file) {
    const std::string git = fmt::format("blob {}", file.content.size()) + '\0' + file.content;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    if (file.is_large) {
      SHA256(reinterpret_cast<const unsigned char*>(file.content.data()), file.content.size(), digest);
    } else {
      SHA1(reinterpret_cast<const unsigned char*>(git.data()), git.size(), digest);
    }
    std::string text;
    for (int i = 0; i < (file.is_large ? SHA256_DIGEST_LENGTH : SHA_DIGEST_LENGTH); ++i)
      text += fmt::format("{:02x}", digest[i]);
    return text;
  }

  void answer(const httplib::Request& request, httplib::Response& response) const {
    if (request.path == fmt::format("/api/models/{}/revision/{}", kRepository, revision) ||
        request.path == fmt::format("/api/models/{}/revision/{}", kRepository, kCommit)) {
      response.set_content(listing.empty() ? true_listing() : listing, "application/json");
      return;
    }
    const std::string start = fmt::format("/{}/resolve/{}/", kRepository, kCommit);
    const auto found =
        request.path.rfind(start, 0) == 0 ? files.find(request.path.substr(start.size())) : files.end();
    if (found == files.end()) {
      response.status = 404;
      return;
    }
    describe(found->second, response);
    response.set_content(found->second.content, "application/octet-stream");
  }

  // The headers that say what a file is.
  static void describe(const File& file, httplib::Response& response) {
    response.set_header("X-Repo-Commit", kCommit);
    response.set_header("ETag", fmt::format("\"{}\"", file.is_large ? "of-the-storage" : etag(file)));
    if (!file.is_large) return;
    response.set_header("X-Linked-Etag", fmt::format("\"{}\"", etag(file)));
    response.set_header("X-Linked-Size", std::to_string(file.content.size()));
  }

 private:
  void note(const httplib::Request& request) {
    const std::lock_guard lock(mutex_);
    asked_.push_back({request.method, request.path, request.target, request.get_header_value("Authorization"),
                      request.get_header_value("Range")});
  }

  std::string true_listing() const {
    std::string names;
    for (const auto& [name, file] : files)
      names += fmt::format("{}{{\"rfilename\":\"{}\"}}", names.empty() ? "" : ",", name);
    return fmt::format(R"({{"sha":"{}","siblings":[{}]}})", kCommit, names);
  }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
};

}  // namespace butter
