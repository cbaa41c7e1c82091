// HubClient: what is asked of a hub: a repository's files, what a file is, a part of it. Attempts that fail
// for a while are repeated, a bounded number of times with bounded waits; what stays is one sentence.
//
// One thread uses it at a time. A cancelled PullState ends every method soon, with kCancelled.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/http_client.h"
#include "hub/model_reference.h"
#include "hub/pull_state.h"

namespace butter {

struct HubServer {
  Url endpoint;
  std::string token;                // empty: none
  int64_t first_wait_ms = 500;      // before the second attempt; doubles from there
  int64_t longest_wait_ms = 30000;  // also of what a server asks for
  int most_attempts = 5;            // without a byte of progress
};

struct HubListing {
  std::string commit;
  std::vector<std::string> names;  // safe (is_safe_file_name), each once, sorted
};

struct HubFile {
  std::string name;
  int64_t bytes = 0;
  std::string etag;  // a name that a file may have; SHA-256 or git's SHA-1 where it is 64 or 40 digits of hex
};

class HubClient {
 public:
  // Both outlive the client.
  HubClient(const HubServer& server, PullState& state);

  Result<HubListing> list(const ModelReference& reference);
  Result<HubFile> look_up(const ModelReference& reference, const std::string& commit,
                          const std::string& name);

  enum class Fetched { kAll, kRangeIgnored };
  // The bytes [from, end) of a file, in order. `sink` returns false where it cannot take them, which is an
  // error of this call too. Ends with kRangeIgnored, the sink having got no byte that is not in its place,
  // where the server gives the whole file to who asks for a part. Then the file is to be had as a whole:
  // `from` is 0, `end` its size, `whole` true, no range is asked for, and `restart` is called before each
  // attempt but the first.
  struct Part {
    int64_t from = 0;
    int64_t end = 0;
    bool whole = false;
    std::function<bool(std::string_view bytes)> sink;
    std::function<bool()> restart;
  };
  Result<Fetched> fetch(const ModelReference& reference, const std::string& commit, const HubFile& file,
                        Part part);

 private:
  class Attempts;
  Url file_url(const ModelReference& reference, const std::string& commit, const std::string& name) const;
  Error refusal(const HttpReply& reply, const std::string& repository, const std::string& what) const;
  Result<std::string> get_text(const Url& url, const std::string& repository, const std::string& what);
  HttpReply fetch_once(const Url& url, const HubFile& file, Part& part);

  const HubServer& server_;
  PullState& state_;
  HttpClient http_;
};

}  // namespace butter
