// Attributes from JSON text: nlohmann's event parser, which does not recurse, feeds a bounded builder.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "checkpoint/attribute_value.h"
#include "checkpoint/attributes.h"
#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr std::string_view kFloatKey = "__float__";

std::optional<double> special_float(std::string_view word) {
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

// The text with each bare Infinity, -Infinity and NaN outside strings written as {"__float__": "..."}, on
// the same line. Other text, right or wrong, goes through for the parser to judge, and so do the words
// after the first `max_words`: each is a value, so that there are too many anyway.
std::string without_bare_floats(std::string_view text, int64_t max_words) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    if (in_string && text[at] == '\\' && at + 1 < text.size()) {
      out += text.substr(at, 2);
      at += 2;
      continue;
    }
    if (text[at] == '"') in_string = !in_string;
    const size_t before = at;
    for (std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (in_string || max_words == 0 || text.substr(at, word.size()) != word) continue;
      out += fmt::format("{{\"{}\":\"{}\"}}", kFloatKey, word);
      at += word.size();
      --max_words;
      break;
    }
    if (at == before) out += text[at++];
  }
  return out;
}

// Receives the parser's events and builds the tree. The first thing that is wrong stops the parser and
// stays in `error`.
class TreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  TreeBuilder(std::string_view text, AttributeDocument& document, const Attributes::JsonLimits& limits)
      : text_(text), document_(document), limits_(limits) {}

  bool null() { return add({std::monostate()}); }
  bool boolean(bool value) { return add({value}); }
  bool number_integer(number_integer_t value) { return add({value}); }
  bool number_unsigned(number_unsigned_t value) {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add({static_cast<int64_t>(value)});
    return add({value});
  }
  bool number_float(number_float_t value, const string_t&) { return add({value}); }
  bool string(string_t& value) { return add({document_.keep(value)}); }
  bool binary(binary_t&) { return false; }

  bool start_object(size_t) { return open(true); }
  bool start_array(size_t) { return open(false); }
  bool key(string_t& name) {
    stack_.back().name = document_.keep(name);
    return true;
  }
  bool end_object() {
    AttributeObject object = std::move(stack_.back().object);
    stack_.pop_back();
    if (auto status = object.index(); !status) return stop(status.error());
    if (const auto value = spelled_float(object)) return add({*value});
    if (!stack_.empty()) return add({std::move(object)});
    document_.root = std::move(object);
    return true;
  }
  bool end_array() {
    AttributeList list = std::move(stack_.back().list);
    stack_.pop_back();
    const auto is_string = [](const AttributeValue& item) {
      return std::holds_alternative<std::string_view>(item.value);
    };
    if (list.empty() || !std::all_of(list.begin(), list.end(), is_string)) return add({std::move(list)});
    AttributeStrings strings;
    strings.reserve(list.size());
    for (const AttributeValue& item : list) strings.push_back(std::get<std::string_view>(item.value));
    return add({std::move(strings)});
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) {
    const size_t end = std::min(at, text_.size());
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 1;
    const size_t begin = end > 24 ? end - 24 : 0;
    return stop(Error(StatusCode::kCorrupt, fmt::format("line {} is not JSON, at or after \"{}\"", line,
                                                        printable(text_.substr(begin, end - begin)))));
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  struct Frame {
    bool is_object;
    std::string_view name;  // of the member that comes next
    AttributeObject object;
    AttributeList list;
  };

  static std::optional<double> spelled_float(const AttributeObject& object) {
    if (object.members.size() != 1 || object.members[0].name != kFloatKey) return std::nullopt;
    const auto* word = std::get_if<std::string_view>(&object.members[0].value.value);
    return word ? special_float(*word) : std::nullopt;
  }

  bool stop(Error error) {
    error_ = std::move(error);
    return false;
  }

  bool open(bool is_object) {
    if (stack_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return stop(
          Error(StatusCode::kLimit, fmt::format("values are nested deeper than {}", limits_.max_depth)));
    }
    if (stack_.empty() && !is_object)
      return stop(Error(StatusCode::kCorrupt, "an array is found; an object is expected"));
    stack_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool add(AttributeValue value) {
    if (stack_.empty())
      return stop(Error(StatusCode::kCorrupt, "a single value is found; an object is expected"));
    if (++values_ > limits_.max_values)
      return stop(
          Error(StatusCode::kLimit, fmt::format("there are more than {} values", limits_.max_values)));
    Frame& frame = stack_.back();
    if (frame.is_object) {
      frame.object.members.push_back({frame.name, std::move(value)});
    } else {
      frame.list.push_back(std::move(value));
    }
    return true;
  }

  std::string_view text_;
  AttributeDocument& document_;
  const Attributes::JsonLimits& limits_;
  std::vector<Frame> stack_;
  int64_t values_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Attributes> Attributes::parse_json(std::string_view text, const std::string& source,
                                          const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(StatusCode::kLimit, "{} has {} bytes; at most {} are expected", source, text.size(),
                limits.max_bytes);
  }
  // The parser takes a NUL for the end of the text.
  if (text.find('\0') != text.npos) return fail(StatusCode::kCorrupt, "{}: a NUL byte is not JSON", source);
  auto document = std::make_shared<AttributeDocument>();
  document->source = source;
  const std::string plain = without_bare_floats(text, limits.max_values);
  TreeBuilder builder(plain, *document, limits);
  if (!nlohmann::json::sax_parse(plain, &builder)) {
    const Error unknown(StatusCode::kCorrupt, "it is not JSON");
    return fail(builder.error().value_or(unknown).within(source));
  }
  return Attributes(std::move(document));
}

}  // namespace butter
