#include "cli/text_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/failure.h"

namespace butter::cli {

void write_text_file(const std::string& path, std::string_view text) {
  std::string unfinished = path + ".XXXXXX";
  const int fd = ::mkstemp(unfinished.data());
  if (fd < 0) refuse("{}: no file can be made there: {}", path, std::strerror(errno));
  std::FILE* file = ::fdopen(fd, "w");
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  ::unlink(unfinished.c_str());
  refuse("{} cannot be written: {}", path, std::strerror(error));
}

}  // namespace butter::cli
