// HubCache: models in the layout that Hugging Face's own tools keep, so that both find what either fetched.
//
//   models--org--name/blobs/<etag>                   contents, under the hash that the hub gives them
//                    /snapshots/<commit>/<file>      relative links to blobs
//                    /refs/<revision>                a text file: the commit
//
// Value type; finding reads only. What is stored appears under its name when it is whole.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "hub/model_reference.h"

namespace butter {

// A commit of the hub: 40 hexadecimal digits.
bool is_commit(std::string_view text);

class HubCache {
 public:
  explicit HubCache(std::string directory) : directory_(std::move(directory)) {}

  // $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub.
  static Result<HubCache> of_user();

  const std::string& directory() const { return directory_; }

  // The file or folder of a model that was fetched. kNotFound where there is none, with a sentence that
  // says how to get it.
  Result<std::string> find(const ModelReference& reference) const;

  std::string repository_path(const std::string& repository) const;
  std::string blob_path(const std::string& repository, const std::string& etag) const;
  std::string snapshot_path(const std::string& repository, const std::string& commit) const;

  // Makes the repository's folders and that of its lock; gives the path of the lock file.
  Result<std::string> prepare(const std::string& repository) const;
  // Links a file of a snapshot to its blob. `name` is safe (is_safe_file_name).
  Status link_file(const std::string& repository, const std::string& commit, const std::string& name,
                   const std::string& etag) const;
  Status write_ref(const ModelReference& reference, const std::string& commit) const;
  // What to say where the system refuses: names the cache, and the variable that moves it.
  Error unusable(const std::string& reason) const;

 private:
  Result<std::string> commit_of(const ModelReference& reference) const;

  std::string directory_;
};

}  // namespace butter
