#include "engine/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace butter {
namespace {

constexpr size_t kKeptErrorBytes = 8192;
constexpr int kTickMilliseconds = 100;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// What posix_spawn wants: null-terminated arrays of C strings that live until the call.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : added) replaced = replaced || text.rfind(name + "=", 0) == 0;
    if (!replaced) result.push_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

Result<pid_t> spawn(std::vector<std::string> arguments, std::vector<std::string> environment, int error_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
  // A group of its own, so that a Ctrl-C of the terminal reaches this process alone, which then ends the
  // child. Signals that this process ignores are not ignored in the child.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);

  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0].c_str(), &actions, &attributes,
                                   pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == ENOENT) return fail(StatusCode::kNotFound, "{} was not found", arguments[0]);
  if (error != 0) return fail(StatusCode::kIo, "{} cannot be run: {}", arguments[0], std::strerror(error));
  return pid;
}

// Reads until the child closes its end or nothing more comes for a tick; false at the end.
bool read_errors(int fd, std::string& errors) {
  pollfd waiting = {fd, POLLIN, 0};
  if (::poll(&waiting, 1, kTickMilliseconds) <= 0) return true;
  char block[4096];
  const ssize_t got = ::read(fd, block, sizeof block);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  errors.append(block, static_cast<size_t>(got));
  if (errors.size() > kKeptErrorBytes) errors.erase(0, errors.size() - kKeptErrorBytes);
  return got > 0;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<ChildResult> run_child(const std::vector<std::string>& arguments,
                              const std::vector<std::pair<std::string, std::string>>& environment,
                              const std::function<bool()>& on_tick) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return fail(StatusCode::kIo, "a pipe cannot be made: {}", std::strerror(errno));
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  BUTTER_ASSIGN(const pid_t pid, spawn(arguments, merged_environment(environment), writer.get()));
  writer.close();

  ChildResult result;
  while (read_errors(reader.get(), result.errors)) {
    if (!on_tick || on_tick()) continue;
    ::kill(-pid, SIGKILL);
    wait_for(pid);
    return fail(StatusCode::kCancelled, "{} was stopped", arguments[0]);
  }
  result.exit_status = wait_for(pid);
  return result;
}

}  // namespace butter
