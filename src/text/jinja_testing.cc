#include "text/jinja_testing.h"

#include <zstd.h>

#include "support/test_data.h"
#include "text/jinja_parser.h"

namespace butter::jinja {

const nlohmann::ordered_json& golden_cases() {
  static const nlohmann::ordered_json parsed = [] {
    const std::string packed = read_test_file(test_data("jinja/cases.json.zst"));
    std::string text(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
    const size_t size = ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
    return nlohmann::ordered_json::parse(std::string_view(text).substr(0, ZSTD_isError(size) ? 0 : size));
  }();
  return parsed;
}

std::tm test_time() {
  std::tm time = {};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 13;
  time.tm_min = 5;
  time.tm_sec = 9;
  time.tm_wday = 5;
  time.tm_yday = 207;
  return time;
}

Result<Text> render(const std::string& source, std::vector<std::pair<std::string, Value>> variables,
                    const Limits& limits) {
  BUTTER_ASSIGN(const Program program, parse_program(source, limits));
  return evaluate(program, {std::move(variables), test_time()}, limits);
}

std::string shown(const Result<Text>& text) {
  return text ? text->bytes : "error: " + text.error().message();
}

std::string marked(const Text& text) {
  std::string out;
  size_t at = 0;
  for (const Span& span : text.content) {
    out += text.bytes.substr(at, span.begin - at) + '[' +
           text.bytes.substr(span.begin, span.end - span.begin) + ']';
    at = span.end;
  }
  return out + text.bytes.substr(at);
}

}  // namespace butter::jinja
