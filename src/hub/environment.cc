#include "hub/environment.h"

#include <algorithm>
#include <cstdlib>

#include "checkpoint/regular_file.h"

namespace butter {
namespace {

constexpr uint64_t kLongestToken = 4096;

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// A token stands in a header: anything but visible ASCII there would be another header.
Result<std::string> checked_token(const std::string& text, const std::string& source) {
  std::string token = trimmed(text);
  const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
  if (token.size() > kLongestToken || !std::all_of(token.begin(), token.end(), is_visible))
    return fail(StatusCode::kInvalidArgument, "{} holds no token: one word of ASCII is expected", source);
  return token;
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Result<std::string> hugging_face_home() {
  if (const std::string stated = environment("HF_HOME"); !stated.empty()) return stated;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/huggingface";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/huggingface";
  return fail(StatusCode::kNotFound,
              "none of HF_HUB_CACHE, HF_HOME and HOME is set; one is needed to find models of the hub");
}

std::string hub_endpoint() {
  const std::string stated = environment("HF_ENDPOINT");
  return stated.empty() ? "https://huggingface.co" : stated;
}

Result<std::string> hub_token() {
  if (const std::string stated = environment("HF_TOKEN"); !stated.empty())
    return checked_token(stated, "HF_TOKEN");
  std::string path = environment("HF_TOKEN_PATH");
  if (path.empty()) {
    const auto home = hugging_face_home();
    if (!home) return std::string();
    path = *home + "/token";
  }
  const auto text = read_text_file(path, 2 * kLongestToken);
  if (!text && text.error().code() == StatusCode::kNotFound) return std::string();
  BUTTER_TRY(text);
  return checked_token(*text, path);
}

}  // namespace butter
