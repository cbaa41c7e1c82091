#include "text/jinja_json.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace butter::jinja {
namespace {

// Builds the value from parser events, on a stack of its own: nothing recurses.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(Provenance provenance, const Limits& limits) : provenance_(provenance), limits_(limits) {}

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return stop("an int needs more than 64 bits");
    return add(Value(static_cast<int64_t>(value)));
  }
  // An int that fits no integer type comes here too; its text tells.
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return stop("an int needs more than 64 bits");
    return add(Value(double{value}));
  }
  bool string(string_t& value) override { return add(text(std::move(value))); }
  bool binary(binary_t&) override { return stop("binary data is not JSON"); }
  bool start_object(size_t) override { return open(true); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return stop(fmt::format("it is not valid at byte {}", position));
  }

  Result<Value> finish() {
    if (!error_.empty()) return fail(StatusCode::kCorrupt, "the JSON text cannot be used: {}", error_);
    return std::move(result_);
  }

 private:
  struct Open {
    bool is_object;
    std::string key;
    Dict dict;
    std::vector<Value> items;
  };

  Value text(std::string bytes) {
    return provenance_ == Provenance::kContent ? Value::content(std::move(bytes))
                                               : Value::text(std::move(bytes));
  }

  bool stop(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  bool open(bool is_object) {
    if (static_cast<int>(open_.size()) >= limits_.max_value_depth) {
      return stop(fmt::format("it nests deeper than {} (max_value_depth)", limits_.max_value_depth));
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (!done.is_object) return add(Value::list(std::move(done.items)));
    return add(Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(done.dict)))));
  }

  bool add(Value value) {
    if (++count_ > limits_.max_steps)
      return stop(fmt::format("it has more than {} values", limits_.max_steps));
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_object) {
      // A text is always a key.
      static_cast<void>(open_.back().dict.set(text(std::move(open_.back().key)), std::move(value)));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  Provenance provenance_;
  const Limits& limits_;
  std::vector<Open> open_;
  Value result_;
  std::string error_;
  int64_t count_ = 0;
};

}  // namespace

Result<Value> value_from_json(std::string_view json, Provenance provenance, const Limits& limits) {
  Builder builder(provenance, limits);
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return builder.finish();
}

}  // namespace butter::jinja
