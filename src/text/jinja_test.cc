#include <gtest/gtest.h>

#include <cmath>

#include "text/jinja_json.h"
#include "text/jinja_print.h"
#include "text/jinja_testing.h"

namespace butter::jinja {
namespace {

std::vector<std::pair<std::string, Value>> variables_from(const nlohmann::ordered_json& json) {
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [name, value] : json.items()) {
    auto converted = value_from_json(value.dump(), Provenance::kTemplate);
    EXPECT_TRUE(converted) << name;
    if (converted) variables.emplace_back(name, *std::move(converted));
  }
  return variables;
}

TEST(JinjaGolden, EveryCaseIsWhatJinja2Renders) {
  const nlohmann::ordered_json& golden = golden_cases();
  ASSERT_GE(golden["cases"].size(), 2000u);
  const auto shared = variables_from(golden["variables"]);
  size_t wrong = 0;
  for (const nlohmann::ordered_json& test : golden["cases"]) {
    const std::string source = test["template"];
    const auto text = render(source, test.contains("variables") ? variables_from(test["variables"]) : shared);
    const bool same =
        test.contains("output") ? text && text->bytes == test["output"].get<std::string>() : !text;
    if (same) continue;
    ++wrong;
    ADD_FAILURE() << "template: " << source
                  << "\n  jinja2: " << (test.contains("output") ? test["output"].get<std::string>() : "error")
                  << "\n  butter: " << shown(text);
    ASSERT_LT(wrong, 40u) << "and more";
  }
}

}  // namespace
}  // namespace butter::jinja
