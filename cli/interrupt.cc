#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "cli/failure.h"

namespace butter::cli {
namespace {

std::atomic<bool> flag{false};
std::atomic<bool> handled{false};
std::atomic<int> last_signal{0};
std::atomic<const char*> unfinished_file{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free,
              "a signal handler may use lock-free atomics only");

void on_signal(int signal) {
  last_signal = signal;
  if (handled && !flag.exchange(true)) return;
  if (const char* path = unfinished_file) ::unlink(path);
  if (::isatty(STDERR_FILENO) == 1) {
    const ssize_t ignored = ::write(STDERR_FILENO, "\r\033[K", 4);
    (void)ignored;
  }
  ::_exit(kExitSignal + signal);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void handle_interrupts() {
  flag = false;
  handled = true;
}
void exit_on_interrupt() {
  handled = false;
}

std::atomic<bool>& interrupted() {
  return flag;
}
int interrupt_exit_status() {
  return kExitSignal + last_signal;
}
void remove_on_signal(const char* path) {
  unfinished_file = path;
}

}  // namespace butter::cli
