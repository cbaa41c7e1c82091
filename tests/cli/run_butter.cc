#include "cli/run_butter.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "butter/pull.h"

extern char** environ;

namespace butter {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr auto kLongest = std::chrono::seconds(60);

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

fs::path make_folder() {
  std::string path = (fs::temp_directory_path() / "butter-cli-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, const RunOptions& options)
    : folder_(make_folder()) {
  std::ofstream(folder_ / "in", std::ios::binary) << options.input;
  std::vector<std::string> words = {BUTTER_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment;
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto replaces = [&](const auto& added) { return text.rfind(added.first + "=", 0) == 0; };
    if (std::none_of(options.environment.begin(), options.environment.end(), replaces))
      environment.push_back(text);
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, (folder_ / "in").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, (folder_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
  int ends[2] = {-1, -1};
  if (options.stdout_to == "|closed") {
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    ::close(ends[0]);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  } else {
    const std::string to = options.stdout_to.empty() ? (folder_ / "out").string() : options.stdout_to;
    posix_spawn_file_actions_addopen(&actions, 1, to.c_str(), O_WRONLY | O_CREAT, 0600);
  }
  if (::posix_spawn(&pid_, BUTTER_PROGRAM, &actions, nullptr, pointers(words).data(),
                    pointers(environment).data()) != 0) {
    std::abort();
  }
  posix_spawn_file_actions_destroy(&actions);
  if (ends[1] >= 0) ::close(ends[1]);
}

RunningProgram::~RunningProgram() {
  if (!has_ended()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool RunningProgram::has_ended() {
  int status = 0;
  if (status_ >= 0) return true;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool RunningProgram::wait_for_error_text(const std::string& text) const {
  const Clock::time_point deadline = Clock::now() + kLongest;
  while (Clock::now() < deadline) {
    if (contents(folder_ / "err").find(text) != std::string::npos) return true;
    siginfo_t info = {};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == pid_)
      break;
    ::poll(nullptr, 0, 5);
  }
  return contents(folder_ / "err").find(text) != std::string::npos;
}

void RunningProgram::signal(int number) const {
  ::kill(pid_, number);
}

ProgramResult RunningProgram::wait() {
  const Clock::time_point deadline = Clock::now() + kLongest;
  while (!has_ended() && Clock::now() < deadline) ::poll(nullptr, 0, 2);
  if (!has_ended()) ::kill(pid_, SIGKILL);
  return {status_, contents(folder_ / "out"), contents(folder_ / "err")};
}

ProgramResult run_butter(const std::vector<std::string>& arguments, const RunOptions& options) {
  return RunningProgram(arguments, options).wait();
}

ScratchFolder::ScratchFolder() : path_(make_folder()) {}
ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> ScratchFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path_))
    names.push_back(fs::relative(entry.path(), path_).string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string tiny_model() {
  return BUTTER_TEST_DATA "/fixtures/llama";
}
std::string chat_model() {
  return BUTTER_CHAT_MODEL;
}
std::string default_model() {
  return find_fetched_model("smollm2").value_or("");
}

}  // namespace butter
