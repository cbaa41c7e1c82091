// Ctrl-C and SIGTERM.
//
// Until handle_interrupts() the first signal ends the program at once: loading has nothing to undo. After it,
// the first sets a flag that generation looks at, and a second ends the program. Both exit with 128 + the
// signal.
#pragma once

#include <atomic>

namespace butter::cli {

// Called once, first of all. Also ignores SIGPIPE: a closed pipe is an error of write().
void install_signal_handlers();

void handle_interrupts();
// Back to the first meaning: chat waits for a line.
void exit_on_interrupt();

// Set by a signal; a caller that goes on clears it.
std::atomic<bool>& interrupted();
// 128 + the last signal.
int interrupt_exit_status();

// A file that must not stay when a signal ends the program; nullptr: none. The text must outlive its
// registration.
void remove_on_signal(const char* path);

}  // namespace butter::cli
