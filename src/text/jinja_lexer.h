// The lexer: template source to tokens, with white space control and jinja2's trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_limits.h"

namespace butter::jinja {

enum class TokenKind {
  kData,           // text outside tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // its value, unescaped
  kInteger,
  kFloat,
  kOperator,  // + - * / // % ** ~ ( ) [ ] { } == != < <= > >= = . : | , ;
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of data, names, strings and operators
  int64_t integer = 0;
  double number = 0;

  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view symbol) const { return kind == TokenKind::kOperator && text == symbol; }
};

// How to call the token in a message: 'endif', end of template.
std::string describe(const Token& token);

// The tokens, the last one of kind kEnd. Line breaks become \n, one at the end of the template is dropped,
// and so are the line break behind a block tag (trim_blocks) and the white space in front of one that begins
// a line (lstrip_blocks): the settings with which chat templates are published.
Result<std::vector<Token>> tokenize(std::string_view source, const Limits& limits);

}  // namespace butter::jinja
