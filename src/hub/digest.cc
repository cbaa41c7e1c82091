#include "hub/digest.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/check.h"

namespace butter {

void Digest::Deleter::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Digest::Digest(Kind kind) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* type = kind == Kind::kSha256 ? EVP_sha256() : EVP_sha1();
  BUTTER_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), type, nullptr) == 1);
}

void Digest::update(std::span<const std::byte> bytes) {
  BUTTER_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

void Digest::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Digest::finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  BUTTER_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1);
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

Result<std::string> digest_of_file(const std::string& path, Digest digest,
                                   const std::function<bool(int64_t done)>& on_block) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rbe"));
  if (!file) return fail(StatusCode::kIo, "{} cannot be opened: {}", path, std::strerror(errno));
  std::vector<std::byte> block(size_t{1} << 20);
  int64_t done = 0;
  while (const size_t got = std::fread(block.data(), 1, block.size(), file.get())) {
    digest.update(std::span(block).first(got));
    done += static_cast<int64_t>(got);
    if (on_block && !on_block(done)) return fail(StatusCode::kCancelled, "reading {} was stopped", path);
  }
  if (std::ferror(file.get()))
    return fail(StatusCode::kIo, "{} cannot be read: {}", path, std::strerror(errno));
  return digest.finish();
}

Result<std::string> sha256_of_file(const std::string& path,
                                   const std::function<bool(int64_t done)>& on_block) {
  return digest_of_file(path, Digest(Digest::Kind::kSha256), on_block);
}

}  // namespace butter
