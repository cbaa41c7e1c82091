// The SHA-256 or SHA-1 of bytes as they come, and of files.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace butter {

class Digest {
 public:
  enum class Kind { kSha256, kSha1 };
  explicit Digest(Kind kind);
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Lower-case hexadecimal. Called once, last.
  std::string finish();

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
};

// Ends `digest` with the bytes of a file. `on_block` is told the bytes read so far and returns false to stop
// (kCancelled).
Result<std::string> digest_of_file(const std::string& path, Digest digest,
                                   const std::function<bool(int64_t done)>& on_block);
Result<std::string> sha256_of_file(const std::string& path,
                                   const std::function<bool(int64_t done)>& on_block);

}  // namespace butter
