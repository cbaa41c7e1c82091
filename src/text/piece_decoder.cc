#include "text/piece_decoder.h"

#include <charconv>

namespace butter {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t found = text.find(from);
    out += text.substr(0, found);
    if (found == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(found + from.size());
  }
}

std::string_view stripped(std::string_view text, const DecodeStep& step) {
  for (size_t i = 0; i < step.left && text.starts_with(step.text); ++i) text.remove_prefix(step.text.size());
  for (size_t i = 0; i < step.right && text.ends_with(step.text); ++i) text.remove_suffix(step.text.size());
  return text;
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && byte >= 0 ? byte : -1;
}

std::string decode_piece(std::span<const DecodeStep> steps, std::string_view token) {
  std::string piece(token);
  for (const DecodeStep& step : steps) {
    switch (step.kind) {
      case DecodeStep::Kind::kReplace:
        piece = replaced(piece, step.text, step.with);
        break;
      case DecodeStep::Kind::kStrip:
        piece = std::string(stripped(piece, step));
        break;
      case DecodeStep::Kind::kBytes:
        if (const int byte = byte_of_token(piece); byte >= 0) piece.assign(1, static_cast<char>(byte));
        break;
    }
  }
  return piece;
}

}  // namespace butter
