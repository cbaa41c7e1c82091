#include "hub/pull_state.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace butter {

void PullState::begin(const char* what, int64_t total_bytes) {
  what_ = what;
  done_ = 0;
  total_ = total_bytes;
}

bool PullState::sleep(int64_t milliseconds) const {
  constexpr int64_t kSlice = 20;
  for (; milliseconds > 0 && !cancelled_; milliseconds -= kSlice)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(milliseconds, kSlice)));
  return !cancelled_;
}

}  // namespace butter
