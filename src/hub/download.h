// Download: files of one commit into the blobs of a HubCache, by several connections where they are large.
#pragma once

#include <string>
#include <vector>

#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/partial_file.h"

namespace butter {

struct TransferSizes {
  int64_t range_bytes = int64_t{64} << 20;  // what one request asks for
  int connections = 4;
};

// One thread calls it, under the repository's lock; everything that is given outlives it.
class Download {
 public:
  Download(const HubCache& cache, const HubServer& server, const ModelReference& reference,
           std::string commit, TransferSizes sizes, PullState& state);

  // Puts the contents of all files into blobs, checked by length and, where the hub tells one, by hash. A
  // blob that is there is checked and kept. What is interrupted stays beside the blob and is taken up by the
  // next download. Whether anything was fetched.
  Result<bool> fetch(const std::vector<HubFile>& files);

 private:
  Result<bool> is_whole(const HubFile& file, const std::string& path);
  Status check_room(const std::vector<HubFile>& files) const;
  Status fetch_file(const HubFile& file);
  Status fill(const HubFile& file, PartialFile& partial);
  Status fill_from_start(const HubFile& file, PartialFile& partial);
  void show_download(int64_t done_bytes);

  const HubCache& cache_;
  const HubServer& server_;
  const ModelReference& reference_;
  std::string commit_;
  TransferSizes sizes_;
  PullState& state_;
  int64_t total_bytes_ = 0;     // of what is to be fetched
  int64_t finished_bytes_ = 0;  // in files that are whole
};

}  // namespace butter
