// Ctrl-C and SIGTERM end the program cleanly, in load, prefill and decode.
#include <gtest/gtest.h>

#include <csignal>

#include "cli/run_butter.h"

namespace butter {
namespace {

using Words = std::vector<std::string>;

// Generates until it is stopped: with a window, positions grow for ever.
const Words kEndless = {"generate",         "-m", tiny_model(), "--token-ids", "1,2,3", "--ignore-eos",
                        "--kv-window-size", "64", "--verbose"};

TEST(Interrupt, InDecode) {
  for (const int number : {SIGINT, SIGTERM}) {
    RunningProgram program(kEndless);
    ASSERT_TRUE(program.wait_for_error_text("of weights"));
    program.signal(number);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.status, 128 + number) << result.err;
  }
}

TEST(Interrupt, InLoadLeavesNothing) {
  for (const int number : {SIGINT, SIGTERM}) {
    RunningProgram program(kEndless);
    ASSERT_TRUE(program.wait_for_error_text("loading"));
    program.signal(number);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.status, 128 + number) << result.err;
  }
}

TEST(Interrupt, InPrefillLeavesNoLogits) {
  const ScratchFolder scratch;
  std::string ids = "1";
  for (int i = 0; i < 4000; ++i) ids += ",2";
  Words words = kEndless;
  words[4] = ids;
  words.insert(words.end(), {"--device", "reference", "--dump-logits", scratch.file("logits")});
  RunningProgram program(words);
  ASSERT_TRUE(program.wait_for_error_text("of weights"));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().status, 128 + SIGINT);
  EXPECT_TRUE(scratch.names().empty());
}

}  // namespace
}  // namespace butter
