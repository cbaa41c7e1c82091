#include "cli/scheme_list.h"

namespace butter::cli {
namespace {

bool names_a_side(std::string_view word) {
  return word.size() > 1 && word[1] == '=';
}

}  // namespace

std::vector<std::string> split_schemes(std::string_view list) {
  std::vector<std::string> schemes;
  bool waits_for_other_side = false;
  for (size_t start = 0, comma = 0; comma != std::string_view::npos; start = comma + 1) {
    comma = list.find(',', start);
    const std::string word(list.substr(start, comma == std::string_view::npos ? comma : comma - start));
    if (waits_for_other_side && names_a_side(word)) {
      schemes.back() += "," + word;
      waits_for_other_side = false;
    } else {
      schemes.push_back(word);
      waits_for_other_side = names_a_side(word);
    }
  }
  return schemes;
}

}  // namespace butter::cli
