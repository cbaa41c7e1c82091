#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>

#include "cli/failure.h"

namespace butter::cli {
namespace {

// The long name of "-m,--model", as sentences call the option.
std::string spoken_name(const std::string& names) {
  const size_t at = names.find("--");
  const std::string from = at == std::string::npos ? names : names.substr(at);
  return from.substr(0, from.find(','));
}

template <typename T>
std::from_chars_result read_whole(const std::string& text, T& value) {
  auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc() && result.ptr != text.data() + text.size())
    result.ec = std::errc::invalid_argument;
  return result;
}

[[noreturn]] void refuse_range(const std::string& option, const std::string& found, Range range) {
  if (range.most == INT64_MAX) refuse("{} is {}; {} or more is expected", option, found, range.least);
  refuse("{} is {}; {} to {} is expected", option, found, range.least, range.most);
}

bool reads_as_integer(const std::string& text) {
  const size_t start = !text.empty() && text[0] == '-' ? 1 : 0;
  return text.size() > start && text.find_first_not_of("0123456789", start) == std::string::npos;
}

int64_t read_integer(const std::string& option, const std::string& text, Range range) {
  if (!reads_as_integer(text)) refuse_usage("{} is \"{}\"; a whole number is expected", option, text);
  int64_t value = 0;
  if (read_whole(text, value).ec != std::errc() || value < range.least || value > range.most) {
    refuse_range(option, text, range);
  }
  return value;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (size_t comma = 0; comma != std::string::npos; start = comma + 1) {
    comma = text.find(',', start);
    parts.push_back(text.substr(start, comma == std::string::npos ? comma : comma - start));
    const size_t first = parts.back().find_first_not_of(" \n\t");
    parts.back() = first == std::string::npos
                       ? ""
                       : parts.back().substr(first, parts.back().find_last_not_of(" \n\t") - first + 1);
  }
  return parts;
}

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},
                           {"B", 1},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"TB", 1e12},
                           {"KiB", 1024},
                           {"MiB", 1048576},
                           {"K", 1024},
                           {"M", 1048576},
                           {"G", 1073741824},
                           {"GiB", 1073741824},
                           {"T", 1099511627776.0},
                           {"TiB", 1099511627776.0}};

int64_t read_bytes(const std::string& option, const std::string& text) {
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  std::string unit(end, text.data() + text.size() - end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  for (const Unit& known : kUnits) {
    if (error != std::errc() || unit != known.name) continue;
    const double bytes = amount * known.bytes;
    if (!(bytes >= 1 && bytes < 9e18))
      refuse("{} is {}; at least 1 byte and less than 9 EB are expected", option, text);
    return static_cast<int64_t>(bytes);
  }
  refuse_usage("{} is \"{}\"; a number of bytes such as 8GiB or 500MB is expected", option, text);
}

// An option that takes one value each time it is given; `take` sees the last.
template <typename Take>
CLI::Option* add_last(CLI::App& app, const std::string& names, const std::string& help,
                      const std::string& type, Take take) {
  CLI::callback_t callback = [take](const CLI::results_t& results) {
    take(results.back());
    return true;
  };
  return app.add_option(names, callback, help)
      ->expected(1)
      ->type_name(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace

void Arguments::flag(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help);
}

void Arguments::text(const std::string& names, std::string& value, const std::string& help,
                     const std::string& kind) {
  add_last(app_, names, help, kind, [&value](const std::string& text) { value = text; });
}

void Arguments::text(const std::string& names, std::optional<std::string>& value, const std::string& help,
                     const std::string& kind) {
  add_last(app_, names, help, kind, [&value](const std::string& text) { value = text; });
}

void Arguments::texts(const std::string& names, std::vector<std::string>& values, const std::string& help,
                      const std::string& kind) {
  CLI::callback_t callback = [&values](const CLI::results_t& results) {
    values = results;
    return true;
  };
  app_.add_option(names, callback, help)
      ->expected(1)
      ->type_name(kind)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Arguments::integer(const std::string& names, int64_t& value, Range range, const std::string& help) {
  add_last(app_, names, help, "N", [&value, range, option = spoken_name(names)](const std::string& text) {
    value = read_integer(option, text, range);
  });
}

void Arguments::optional_integer(const std::string& names, std::optional<int64_t>& value, int64_t bare,
                                 Range range, const std::string& help) {
  CLI::callback_t callback = [&value, bare, range,
                              option = spoken_name(names)](const CLI::results_t& results) {
    const std::string& text = results.back();
    value = text.empty() ? bare : read_integer(option, text, range);
    return true;
  };
  app_.add_option(names, callback, help)
      ->expected(0, 1)
      ->type_name("[N]")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Arguments::seed(const std::string& names, uint64_t& value, const std::string& help) {
  add_last(app_, names, help, "N", [&value, option = spoken_name(names)](const std::string& text) {
    if (read_whole(text, value).ec == std::errc()) return;
    if (!reads_as_integer(text)) refuse_usage("{} is \"{}\"; a whole number is expected", option, text);
    refuse("{} is {}; 0 to {} is expected", option, text, std::numeric_limits<uint64_t>::max());
  });
}

void Arguments::number(const std::string& names, float& value, const std::string& help) {
  add_last(app_, names, help, "X", [&value, option = spoken_name(names)](const std::string& text) {
    double read = 0;
    const std::errc error = read_whole(text, read).ec;
    if (error == std::errc::invalid_argument)
      refuse_usage("{} is \"{}\"; a number is expected", option, text);
    if (error != std::errc() ||
        (std::isfinite(read) && std::fabs(read) > std::numeric_limits<float>::max())) {
      refuse("{} is {}; a number that a float can hold is expected", option, text);
    }
    value = static_cast<float>(read);
  });
}

void Arguments::bytes(const std::string& names, int64_t& value, const std::string& help) {
  add_last(app_, names, help, "BYTES", [&value, option = spoken_name(names)](const std::string& text) {
    value = read_bytes(option, text);
  });
}

void Arguments::words(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  add_last(app_, names, help, "A,B,...", [&values, option = spoken_name(names)](const std::string& text) {
    values = split_at_commas(text);
    for (const std::string& word : values) {
      if (word.empty()) refuse("{} is \"{}\"; names with a comma between them are expected", option, text);
    }
  });
}

void Arguments::integers(const std::string& names, std::vector<int64_t>& values, Range range,
                         const std::string& help) {
  add_last(app_, names, help, "N,N,...",
           [&values, range, option = spoken_name(names)](const std::string& text) {
             values.clear();
             for (const std::string& part : split_at_commas(text))
               values.push_back(read_integer(option, part, range));
           });
}

void Arguments::positional(const std::string& name, std::string& value, const std::string& help,
                           const std::string& kind) {
  add_last(app_, name, help, kind, [&value](const std::string& text) { value = text; })->required();
}

}  // namespace butter::cli
