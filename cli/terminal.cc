#include "cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/failure.h"

namespace butter::cli {
namespace {

constexpr int64_t kMaxTextFile = int64_t{1} << 30;
int output_error = 0;  // errno of the first write that failed

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string read_all(int fd, const std::string& name) {
  std::string text;
  char block[65536];
  for (;;) {
    const ssize_t got = ::read(fd, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("{} cannot be read: {}", name, std::strerror(errno));
    if (got == 0) return text;
    text.append(block, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > kMaxTextFile) {
      refuse("{} holds more than {} bytes of text, which is the most that is read", name, kMaxTextFile);
    }
  }
}

}  // namespace

bool write_out(std::string_view text) {
  if (output_error != 0) return false;
  if (write_all(STDOUT_FILENO, text)) return true;
  output_error = errno;
  return false;
}

bool output_failed() {
  return output_error != 0;
}

void check_output() {
  if (output_error != 0 && output_error != EPIPE) {
    refuse("standard output cannot be written: {}", std::strerror(output_error));
  }
}

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}
bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

void note(std::string_view line) {
  write_all(STDERR_FILENO, fmt::format("{}\n", line));
}

std::string read_stdin() {
  return read_all(STDIN_FILENO, "standard input");
}

std::string read_text_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse("{} cannot be opened: {}", path, std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } const closer{fd};
  return read_all(fd, path);
}

ProgressBar::ProgressBar(std::string what, Unit unit)
    : what_(std::move(what)),
      unit_(unit),
      enabled_(stderr_is_terminal()),
      due_(Clock::now() + std::chrono::milliseconds(300)) {}

ProgressBar::~ProgressBar() {
  erase();
}

void ProgressBar::update(int64_t done, int64_t total) {
  if (!enabled_ || total <= 0 || Clock::now() < due_) return;
  due_ = Clock::now() + std::chrono::milliseconds(100);
  constexpr int kWidth = 30;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  const std::string numbers =
      unit_ == Unit::kBytes
          ? fmt::format("{} of {}", spoken_bytes(done), spoken_bytes(total))
          : fmt::format("{} of {} {}", done, total, unit_ == Unit::kTokens ? "tokens" : "questions");
  write_all(STDERR_FILENO, fmt::format("\r\033[K{} [{}] {:3.0f} %  {}", what_, bar, share * 100, numbers));
  drawn_ = true;
}

void ProgressBar::erase() {
  if (drawn_) write_all(STDERR_FILENO, "\r\033[K");
  drawn_ = false;
}

std::string spoken_bytes(int64_t bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kNames[unit]);
}

}  // namespace butter::cli
