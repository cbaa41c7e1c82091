#include "engine/sha256_file.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/check.h"

namespace butter {

void Sha256::Deleter::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  BUTTER_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
  BUTTER_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  BUTTER_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1);
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

Result<std::string> sha256_of_file(const std::string& path,
                                   const std::function<bool(int64_t done)>& on_block) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rbe"));
  if (!file) return fail(StatusCode::kIo, "{} cannot be opened: {}", path, std::strerror(errno));
  Sha256 hash;
  std::vector<std::byte> block(size_t{1} << 20);
  int64_t done = 0;
  while (const size_t got = std::fread(block.data(), 1, block.size(), file.get())) {
    hash.update(std::span(block).first(got));
    done += static_cast<int64_t>(got);
    if (on_block && !on_block(done)) return fail(StatusCode::kCancelled, "reading {} was stopped", path);
  }
  if (std::ferror(file.get()))
    return fail(StatusCode::kIo, "{} cannot be read: {}", path, std::strerror(errno));
  return hash.finish();
}

}  // namespace butter
