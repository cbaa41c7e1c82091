// What tests and the fuzz target share to forge cache files: anyone can compute the checksums, so what is
// behind them must stand any bytes too.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace butter {

// Gives a cache file the length and the checksums that its bytes ask for, where it is long enough to have
// them.
inline void mend_cache_file(std::string& file) {
  constexpr size_t kPrefix = 32, kHashed = 24, kChecksum = 16;
  if (file.size() < kPrefix + kChecksum) return;
  const uint64_t bytes = file.size();
  std::memcpy(file.data() + 16, &bytes, sizeof bytes);
  uint32_t header = 0;
  std::memcpy(&header, file.data() + 12, sizeof header);
  if (header <= file.size() - kPrefix - kChecksum) {
    const std::string hashed = file.substr(0, kHashed) + file.substr(kPrefix, header);
    const uint64_t hash = XXH3_64bits(hashed.data(), hashed.size());
    std::memcpy(file.data() + kHashed, &hash, sizeof hash);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(file.data(), file.size() - kChecksum));
  std::memcpy(file.data() + file.size() - kChecksum, &canonical, kChecksum);
}

}  // namespace butter
