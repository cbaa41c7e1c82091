// LogitsFile: writes logits [positions, vocabulary] as float32 safetensors, row by row.
//
// It grows under a name of its own beside the one asked for, and takes that only when it is complete: a
// command that fails, or that a signal ends, leaves nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace butter::cli {

class LogitsFile {
 public:
  // Throws Failure where the folder takes no file.
  explicit LogitsFile(const std::string& path);
  ~LogitsFile();
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;

  // Rows of one length. Must not throw (the library calls it): an error is kept for finish().
  void append(std::span<const float> logits);
  void finish();

 private:
  void write(const void* data, size_t bytes);

  std::string path_;
  std::string unfinished_path_;
  int fd_ = -1;
  int error_ = 0;  // errno of the first write that failed
  int64_t rows_ = 0;
  int64_t columns_ = 0;
};

}  // namespace butter::cli
