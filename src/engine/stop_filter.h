// StopFilter: finds stop strings in a stream of text pieces, and holds back what may become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace butter {

class StopFilter {
 public:
  // Empty stop strings are refused where options are checked.
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next piece; returns the text that is certain to be part of the answer.
  std::string push(std::string_view piece);
  // The rest, when the stream ends without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace butter
