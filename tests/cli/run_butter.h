// Runs the program in a child process and keeps what it wrote.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace butter {

struct ProgramResult {
  int status = 0;  // 128 + signal where a signal ended it
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string input;                                                  // its standard input
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to the test's own
  // Where stdout goes in place of ProgramResult::out: a file, or "|closed", a pipe without a reader.
  std::string stdout_to = {};
};

// A program that runs. Ended at the latest when a minute has passed, and by the destructor.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& arguments, const RunOptions& options = {});
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Whether `text` came on stderr before the program ended or a minute was over.
  bool wait_for_error_text(const std::string& text) const;
  void signal(int number) const;
  ProgramResult wait();

 private:
  bool has_ended();

  pid_t pid_ = 0;
  int status_ = -1;
  std::filesystem::path folder_;
};

ProgramResult run_butter(const std::vector<std::string>& arguments, const RunOptions& options = {});

// A fresh folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const;  // sorted, all levels

 private:
  std::filesystem::path path_;
};

// A tiny model that the tests bring along; it has no tokenizer.
std::string tiny_model();
// The same model with a tokenizer and a chat template (tests/support/chat_model.h).
std::string chat_model();
// The path of the default model, empty where it has not been fetched.
std::string default_model();

}  // namespace butter
