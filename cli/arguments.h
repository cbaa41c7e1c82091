// Arguments: what a command takes on its command line, declared one value at a time.
//
// A thin front of CLI11, whose header stays in arguments.cc, and whose messages are replaced by sentences
// that name the option, what was found and what was expected. A value that does not read as its type is a
// usage error; a number out of its range is an error. Values are written when the command line is parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace butter::cli {

// Both ends belong to it.
struct Range {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};

class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  // `names` as CLI11 reads them: "-m,--model". Every option that takes a value may be repeated; the last
  // holds, except in a list. `kind` is what --help calls a value, and
  // what completions know of it: FILE, MODEL, NAME, SCHEME, or words with | between them.
  void flag(const std::string& names, bool& value, const std::string& help);
  void text(const std::string& names, std::string& value, const std::string& help,
            const std::string& kind = "TEXT");
  void text(const std::string& names, std::optional<std::string>& value, const std::string& help,
            const std::string& kind = "TEXT");
  void texts(const std::string& names, std::vector<std::string>& values, const std::string& help,
             const std::string& kind = "TEXT");
  void integer(const std::string& names, int64_t& value, Range range, const std::string& help);
  // Given without a value it is `bare`; not given it stays empty.
  void optional_integer(const std::string& names, std::optional<int64_t>& value, int64_t bare, Range range,
                        const std::string& help);
  void seed(const std::string& names, uint64_t& value, const std::string& help);
  void number(const std::string& names, float& value, const std::string& help);
  // "8GiB", "500MB", "123456": KB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024.
  void bytes(const std::string& names, int64_t& value, const std::string& help);
  // Values with commas between them.
  void words(const std::string& names, std::vector<std::string>& values, const std::string& help);
  void integers(const std::string& names, std::vector<int64_t>& values, Range range, const std::string& help);
  // A value without a name, required.
  void positional(const std::string& name, std::string& value, const std::string& help,
                  const std::string& kind = "TEXT");

 private:
  CLI::App& app_;
};

}  // namespace butter::cli
