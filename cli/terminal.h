// Standard streams as the commands use them: results to stdout, everything else to stderr, and no progress
// where stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace butter::cli {

// Writes to stdout at once. False when stdout can take no more: the caller stops what it does. Must not
// throw: the library calls it from its streams.
bool write_out(std::string_view text);
// Ends the program's output: kExitOk where all was written or the reader went away (`butter ... | head`),
// else a Failure that names the system's reason.
void check_output();
bool output_failed();

bool stderr_is_terminal();
bool stdin_is_terminal();
// A line on stderr.
void note(std::string_view line);

// All of standard input. Throws Failure where it cannot be read.
std::string read_stdin();
std::string read_text_file(const std::string& path);

// A bar on stderr for what takes longer than a moment; erased at the end. Does nothing without a terminal.
class ProgressBar {
 public:
  // `what` is said before the bar; the unit decides how numbers are printed.
  enum class Unit { kBytes, kTokens, kQuestions };
  ProgressBar(std::string what, Unit unit);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, int64_t total);
  void erase();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Unit unit_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point due_;  // of the next drawing
};

// "97.5 MiB"
std::string spoken_bytes(int64_t bytes);

}  // namespace butter::cli
