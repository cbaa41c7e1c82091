// HashedWriter and HashedReader: files that end with a checksum of all before it, written whole or not at
// all.
//
// The checksum is XXH3 with 128 bits, in its canonical order of bytes. Both work through a buffer of fixed
// size. Messages do not name the file: its owner does. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"

namespace butter {

constexpr int64_t kFileChecksumBytes = 16;

// XXH3 over bytes in any cuts. Move-only.
class Checksum {
 public:
  Checksum();
  void add(const void* data, size_t bytes);
  // Of all bytes so far, [kFileChecksumBytes].
  void digest(std::byte* out) const;

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

class HashedWriter {
 public:
  // A new file beside `path`, which takes its place when it is finished; mode 0644 less the umask.
  static Result<HashedWriter> create(const std::string& path);
  HashedWriter(HashedWriter&& other) noexcept;
  HashedWriter& operator=(HashedWriter&&) = delete;
  // Unless it was finished, nothing stays.
  ~HashedWriter();

  Status write(const void* data, size_t bytes);
  // Adds the checksum, and gives the file its name once it is on the disk.
  Status finish();

 private:
  HashedWriter(std::string path, std::string unfinished, int fd);
  Status flush();
  Status put(const std::byte* data, size_t bytes);

  std::string path_;
  std::string unfinished_;  // empty once it has its name
  int fd_;
  std::vector<std::byte> buffer_;
  Checksum checksum_;
};

class HashedReader {
 public:
  // Refuses what is no regular file; never waits for one.
  static Result<HashedReader> open(const std::string& path);
  HashedReader(HashedReader&& other) noexcept;
  HashedReader& operator=(HashedReader&&) = delete;
  ~HashedReader();

  // When it was opened.
  int64_t bytes() const { return bytes_; }
  // The next bytes; kCorrupt where the file ends before.
  Status read(void* to, size_t bytes);
  // Back to the start.
  void rewind();
  // Reads on to the end: whether the last bytes are the checksum of all the others.
  Status check();

 private:
  HashedReader(int fd, int64_t bytes);

  int fd_;
  int64_t bytes_;
  int64_t at_ = 0;
  Checksum checksum_;
};

}  // namespace butter
