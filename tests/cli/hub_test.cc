// Models of the hub, from a hub of the test's own: pulled, found by -m, stopped and taken up again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run_butter.h"
#include "support/fake_hub.h"
#include "support/test_data.h"

namespace butter {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Hub : public testing::Test {
 protected:
  Hub() {
    for (const auto& entry : fs::directory_iterator(tiny_model())) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file())
        hub_.files[name] = {read_test_file(entry.path().string()), name == "model.safetensors"};
    }
    // An endpoint's own proxy settings do not matter here; a token of the user's must not be sent.
    options_.environment = {{"HF_ENDPOINT", hub_.endpoint()},
                            {"HF_HOME", home_.file("hf")},
                            {"HF_HUB_CACHE", ""},
                            {"HF_TOKEN", ""},
                            {"HF_TOKEN_PATH", ""}};
  }

  ScratchFolder home_;
  FakeHub hub_;
  RunOptions options_;
};

TEST_F(Hub, AModelIsPulledAndRun) {
  const std::vector<std::string> generate = {"-m", "org/tiny", "--token-ids", "1,2,3", "-n", "4", "--json"};
  const ProgramResult before = run_butter(generate, options_);
  EXPECT_EQ(before.status, 1);
  EXPECT_THAT(before.err, HasSubstr("`butter pull org/tiny`"));

  const ProgramResult pulled = run_butter({"pull", "org/tiny", "--json"}, options_);
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  const auto json = nlohmann::json::parse(pulled.out);
  EXPECT_EQ(json["path"], home_.file("hf/hub/models--org--tiny/snapshots/" + FakeHub::kCommit));
  EXPECT_FALSE(json["was_there"]);

  const ProgramResult after = run_butter(generate, options_);
  ASSERT_EQ(after.status, 0) << after.err;
  const ProgramResult local =
      run_butter({"-m", tiny_model(), "--token-ids", "1,2,3", "-n", "4", "--json"}, options_);
  EXPECT_EQ(nlohmann::json::parse(after.out)["token_ids"], nlohmann::json::parse(local.out)["token_ids"]);

  const ProgramResult again = run_butter({"pull", "org/tiny"}, options_);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, HasSubstr("already"));
}

TEST_F(Hub, TheTokenIsReadFromTheHome) {
  fs::create_directories(home_.file("hf"));
  std::ofstream(home_.file("hf/token")) << "hf_of_the_file\n";
  EXPECT_EQ(run_butter({"pull", "org/tiny"}, options_).status, 0);
  EXPECT_EQ(hub_.asked().front().authorization, "Bearer hf_of_the_file");
  options_.environment[3].second = "hf_of_the_environment";
  EXPECT_EQ(run_butter({"pull", "org/tiny"}, options_).status, 0);
  EXPECT_EQ(hub_.asked().back().authorization, "Bearer hf_of_the_environment");
  options_.environment[3].second = "two words";
  const ProgramResult result = run_butter({"pull", "org/tiny"}, options_);
  EXPECT_THAT(result.err, HasSubstr("HF_TOKEN holds no token"));
  EXPECT_THAT(result.err, Not(HasSubstr("two words")));
}

TEST_F(Hub, WhatIsWrongIsOneSentence) {
  for (const char* name : {"org/other", "org/tiny:Q4_K_M", "org/tiny@dev", "org/../tiny"}) {
    const ProgramResult result = run_butter({"pull", name}, options_);
    EXPECT_EQ(result.status, 1) << name;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  options_.environment[0].second = "huggingface";
  EXPECT_THAT(run_butter({"pull", "org/tiny"}, options_).err, HasSubstr("HF_ENDPOINT"));
}

TEST_F(Hub, CtrlCLeavesWhatTheNextPullTakesUp) {
  hub_.files["model.safetensors"].content.resize(300000);
  const std::string& content = hub_.files["model.safetensors"].content;
  std::atomic<bool> may_go_on{false}, has_begun{false};
  hub_.on_request = [&](const httplib::Request& request, httplib::Response& response) {
    if (may_go_on || request.method != "GET" || request.path.find(".safetensors") == std::string::npos)
      return false;
    FakeHub::describe(hub_.files["model.safetensors"], response);
    response.set_content_provider(content.size(), "application/octet-stream",
                                  [&](size_t at, size_t, httplib::DataSink& sink) {
                                    if (at == 0) return sink.write(content.data(), 200000);
                                    has_begun = true;
                                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                    return !may_go_on.load();
                                  });
    return true;
  };
  RunningProgram program({"pull", "org/tiny"}, options_);
  for (int i = 0; i < 5000 && !has_begun; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_TRUE(has_begun);
  program.signal(SIGINT);
  const ProgramResult stopped = program.wait();
  may_go_on = true;
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_EQ(stopped.out, "");

  const ProgramResult pulled = run_butter({"pull", "org/tiny"}, options_);
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_NE(hub_.downloads().back().range.rfind("bytes=0-", 0), 0u);
  EXPECT_EQ(read_test_file(
                home_.file("hf/hub/models--org--tiny/snapshots/" + FakeHub::kCommit + "/model.safetensors")),
            content);
}

}  // namespace
}  // namespace butter
