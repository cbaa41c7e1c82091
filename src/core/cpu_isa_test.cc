#include "core/cpu_isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace butter {
namespace {

class ForcedIsa : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("BUTTER_ISA"); }
  static Result<Isa> choose(const char* name) {
    setenv("BUTTER_ISA", name, 1);
    return choose_isa();
  }
};

TEST_F(ForcedIsa, EachThatTheMachineHasCanBeForced) {
  for (Isa isa : available_isas()) {
    const auto chosen = choose(isa_name(isa));
    ASSERT_TRUE(chosen);
    EXPECT_EQ(*chosen, isa);
  }
  unsetenv("BUTTER_ISA");
  EXPECT_EQ(*choose_isa(), available_isas().back());
}

TEST_F(ForcedIsa, AnUnknownOrMissingOneIsAnErrorThatListsWhatThereIs) {
  const auto unknown = choose("sse9");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("\"sse9\""), std::string::npos);
  EXPECT_NE(unknown.error().message().find("portable"), std::string::npos);
  for (const char* name : {"avx2", "avx512", "amx"}) {
    bool has = false;
    for (Isa isa : available_isas()) has = has || std::string(isa_name(isa)) == name;
    if (has) continue;
    const auto lacking = choose(name);
    ASSERT_FALSE(lacking);
    EXPECT_NE(lacking.error().message().find("this CPU lacks"), std::string::npos);
  }
}

}  // namespace
}  // namespace butter
