#include "text/jinja_loop.h"

namespace butter::jinja {

Result<bool> Loop::look_ahead() {
  while (next_ < items_.size()) {
    Value item = items_[next_++];
    if (filter_) {
      BUTTER_ASSIGN(const bool wanted, filter_(item));
      if (!wanted) continue;
    }
    ahead_.push_back(std::move(item));
    return true;
  }
  return false;
}

Result<bool> Loop::advance() {
  if (ahead_.empty()) {
    BUTTER_ASSIGN(const bool found, look_ahead());
    if (!found) return false;
  }
  if (index0_ >= 0) previous_ = std::move(current_);
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  ++index0_;
  return true;
}

void Loop::end() {
  ended_ = true;
  items_.clear();
  next_ = 0;
  filter_ = nullptr;
  ahead_.clear();
  current_ = Value();
  previous_.reset();
  last_changed_.reset();
}

Result<int64_t> Loop::length() {
  for (bool more = true; more;) {
    BUTTER_ASSIGN(more, look_ahead());
  }
  return index0_ + 1 + static_cast<int64_t>(ahead_.size());
}

Result<std::optional<Value>> Loop::attribute(std::string_view name) {
  if (ended_) {
    return fail(StatusCode::kUnsupported,
                "loop.{} is read after the loop has ended; it is read in the loop only", name);
  }
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "depth") return Value(depth0_ + 1);
  if (name == "depth0") return Value(depth0_);
  if (name == "previtem") return previous_ ? *previous_ : Value::undefined("there is no previous item");
  if (name == "last" || name == "nextitem") {
    bool more = !ahead_.empty();
    if (!more) {
      BUTTER_ASSIGN(more, look_ahead());
    }
    if (name == "last") return Value(!more);
    return more ? ahead_.front() : Value::undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    BUTTER_ASSIGN(const int64_t all, length());
    if (name == "length") return Value(all);
    return Value(name == "revindex" ? all - index0_ : all - index0_ - 1);
  }
  return std::nullopt;
}

}  // namespace butter::jinja
