// The SHA-256 of bytes as they come, and of files.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/status.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace butter {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  // Lower-case hexadecimal. Called once, last.
  std::string finish();

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
};

// `on_block` is told the bytes read so far and returns false to stop (kCancelled).
Result<std::string> sha256_of_file(const std::string& path,
                                   const std::function<bool(int64_t done)>& on_block);

}  // namespace butter
