// Loop: the state of one for loop and the object `loop` that its body sees.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "text/jinja_value.h"

namespace butter::jinja {

// Items are taken one by one and filtered when they are taken (`for x in xs if ...`), because the filter may
// look at what the body has set; loop.last, nextitem and length look ahead, as in jinja2. Owned by the values
// that refer to it; end() drops everything it holds, so that a loop kept in a namespace is an empty shell and
// loops cannot hold each other.
class Loop {
 public:
  using Filter = std::function<Result<bool>(const Value&)>;

  // No filter: every item is taken. `depth0` counts the recursive loops of the same text around it.
  Loop(std::vector<Value> items, Filter filter, int64_t depth0)
      : items_(std::move(items)), filter_(std::move(filter)), depth0_(depth0) {}

  // Makes the next item the current one; false if there is none.
  Result<bool> advance();
  const Value& current() const { return current_; }
  void end();

  int64_t index0() const { return index0_; }
  int64_t depth0() const { return depth0_; }
  Result<int64_t> length();
  // loop.<name>; nullopt if it has no such attribute. Methods (cycle, changed) are rows of the method table.
  Result<std::optional<Value>> attribute(std::string_view name);
  // The values that loop.changed() saw last.
  std::optional<Value>& last_changed() { return last_changed_; }
  bool ended() const { return ended_; }

 private:
  Result<bool> look_ahead();

  std::vector<Value> items_;
  Filter filter_;
  int64_t depth0_;
  size_t next_ = 0;          // in items_
  std::deque<Value> ahead_;  // taken and passed by the filter, not yet current
  int64_t index0_ = -1;
  Value current_;
  std::optional<Value> previous_;
  std::optional<Value> last_changed_;
  bool ended_ = false;
};

}  // namespace butter::jinja
