// MappedFile: a read-only memory map of a whole regular file, and a guard for when the file shrinks.
//
// Nothing is read at open: pages come in as they are touched. All const methods may be called from any
// thread. Views of bytes() must not outlive the MappedFile.
//
// A file that another program truncates while it is mapped turns reads past its new end into SIGBUS.
// With install_truncation_guard() such a read gives zeros instead, and damaged() says so from then on;
// whoever computed from the file's bytes asks after a step, and reports an error in place of a result.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/regular_file.h"
#include "core/status.h"

namespace butter {

class MappedFile {
 public:
  // Refuses, each with one sentence: what is missing, unreadable, empty, a directory, FIFO, socket or
  // device (never blocks), and more maps at a time than the guard's table holds (1024).
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Gives the memory of the pages that lie wholly inside `part` back to the system. They stay valid: a
  // later read fetches them again. `part` may reach beyond the file.
  void drop_pages(std::span<const std::byte> part) const;
  // Asks the system to read the pages that `part` touches, without waiting for them.
  void prefetch(std::span<const std::byte> part) const;

  // True once a read met a part of the file that is gone; stays true. Needs the guard. One atomic load.
  bool damaged() const;
  // Whether what was read so far can be trusted, as a Status with its sentence: not damaged, and the file
  // is not shorter than its map. The second sees a cut inside the last page, which reads as zeros without
  // a fault. One system call.
  Status check_undamaged() const;

 private:
  MappedFile(std::string path, FileDescriptor descriptor, std::span<const std::byte> bytes, size_t slot);

  std::string path_;
  FileDescriptor descriptor_;
  std::span<const std::byte> bytes_;
  size_t slot_;  // in the guard's table
};

// Installs the process-wide SIGBUS handler of the guard, once; further calls do nothing. Faults outside
// every MappedFile go to the handler that was there before.
void install_truncation_guard();

// Whether any MappedFile that is open now is damaged. One atomic load: fit to be asked after each step.
bool any_mapping_damaged();

}  // namespace butter
