#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

namespace butter {
namespace {

// Length of the longest end of `text` that is a proper beginning of `stop`.
size_t partial_match(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  held_.append(piece);
  // The stop that is complete first ends the answer, as it would if characters came one by one.
  size_t first = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    first = at + stop.size() < end ? at : std::min(first, at);
    end = at + stop.size();
  }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string certain = held_.substr(0, first);
    held_.clear();
    return certain;
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, partial_match(held_, stop));
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopFilter::finish() {
  return std::exchange(held_, {});
}

}  // namespace butter
