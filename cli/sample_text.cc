#include "cli/sample_text.h"

#include <filesystem>

#include "cli/failure.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSampleNames[] = {"alice29.txt", "asyoulik.txt", "lcet10.txt"};

// Beside the installed program, else in the sources that a build came from.
fs::path sample_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed = (program.parent_path() / BUTTER_TEXT_FROM_PROGRAM).lexically_normal();
  for (const fs::path& folder : {installed, fs::path(BUTTER_TEXT_IN_SOURCES)}) {
    if (fs::exists(folder / kSampleNames[0], error)) return folder;
  }
  refuse("the sample texts are not installed: {} was looked for; name a file with --text",
         (installed / kSampleNames[0]).string());
}

// Offset of the first byte that begins no UTF-8 character, or npos.
size_t first_malformed(const std::string& text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  for (size_t at = 0; at < text.size();) {
    const unsigned lead = byte(at);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0) return at;
    for (size_t i = 1; i < length; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    }
    at += length;
  }
  return std::string::npos;
}

NamedText read_one(const std::string& path) {
  NamedText read{fs::path(path).filename().string(), read_text_file(path)};
  if (read.text.empty()) refuse("{} is empty; a text is expected", path);
  if (const size_t at = first_malformed(read.text); at != std::string::npos) {
    refuse("{} is no UTF-8 text: byte {} begins no character", path, at);
  }
  return read;
}

}  // namespace

std::vector<NamedText> read_eval_texts(const std::string& source) {
  if (source != "sample") return {read_one(source)};
  const fs::path folder = sample_folder();
  std::vector<NamedText> texts;
  for (const char* name : kSampleNames) texts.push_back(read_one((folder / name).string()));
  return texts;
}

}  // namespace butter::cli
