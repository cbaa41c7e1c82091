#include "text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "text/jinja_lexer.h"

namespace butter::jinja {
namespace {

// Of arguments by name in one call and of parameters of one macro: each is compared with the others.
constexpr size_t kMaxNamed = 255;

constexpr std::string_view kUnsupportedTags[] = {"autoescape", "block",  "debug",   "do",        "extends",
                                                 "from",       "import", "include", "pluralize", "trans"};

// Recursive descent. Every function that can call itself again holds a guard on nesting_.
class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits) : tokens_(std::move(tokens)), limits_(limits) {}

  Result<Program> run() {
    BUTTER_ASSIGN(Body body, parse_body({}));
    return Program{std::move(body)};
  }

 private:
  // ---- tokens ----

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  int line() const { return current().line; }

  bool skip_name(std::string_view name) {
    if (!current().is_name(name)) return false;
    take();
    return true;
  }
  bool skip_operator(std::string_view symbol) {
    if (!current().is_operator(symbol)) return false;
    take();
    return true;
  }

  template <typename... Args>
  tl::unexpected<Error> error_at(int at_line, StatusCode code, fmt::format_string<Args...> format,
                                 Args&&... args) {
    return fail(code, "template line {}: {}", at_line, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  tl::unexpected<Error> error(fmt::format_string<Args...> format, Args&&... args) {
    return error_at(line(), StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
  }
  tl::unexpected<Error> too_deep() {
    return error_at(line(), StatusCode::kLimit, "blocks and expressions nest deeper than {} (max_nesting)",
                    limits_.max_nesting);
  }

  tl::unexpected<Error> too_many() {
    return error_at(line(), StatusCode::kLimit, "there are more than {} arguments by name or parameters",
                    kMaxNamed);
  }

  Status expect_operator(std::string_view symbol) {
    if (skip_operator(symbol)) return {};
    return error("expected '{}', found {}", symbol, describe(current()));
  }
  Status expect_name(std::string_view name) {
    if (skip_name(name)) return {};
    return error("expected '{}', found {}", name, describe(current()));
  }
  Status expect_kind(TokenKind kind, std::string_view shown) {
    if (current().kind != kind) return error("expected {}, found {}", shown, describe(current()));
    take();
    return {};
  }
  Result<std::string> expect_any_name() {
    if (current().kind != TokenKind::kName) return error("expected a name, found {}", describe(current()));
    return take().text;
  }

  // ---- making nodes ----

  static int depth_of(const ExpressionPtr& e) { return e ? e->depth : 0; }
  static int depth_of(const ArgumentList& a) {
    int depth = std::max(depth_of(a.more_positional), depth_of(a.more_named));
    for (const auto& e : a.positional) depth = std::max(depth, depth_of(e));
    for (const auto& [name, e] : a.named) depth = std::max(depth, depth_of(e));
    return depth;
  }
  template <typename Pairs>
  static int depth_of_seconds(const Pairs& pairs) {
    int depth = 0;
    for (const auto& [first, e] : pairs) depth = std::max(depth, depth_of(e));
    return depth;
  }
  static int depth_of_all(const std::vector<ExpressionPtr>& all) {
    int depth = 0;
    for (const auto& e : all) depth = std::max(depth, depth_of(e));
    return depth;
  }

  template <typename Node>
  Result<ExpressionPtr> make(int at_line, int depth_below, Node node) {
    if (depth_below >= limits_.max_nesting) return too_deep();
    return ExpressionPtr(new Expression{at_line, depth_below + 1, std::move(node)});
  }

  // ---- expressions, loosest first ----

  Result<ExpressionPtr> parse_expression(bool with_conditional = true) {
    DepthGuard guard(nesting_, limits_.max_nesting);
    if (!guard.ok()) return too_deep();
    return with_conditional ? parse_conditional() : parse_logic(true);
  }

  Result<ExpressionPtr> parse_conditional() {
    const int at_line = line();
    BUTTER_ASSIGN(ExpressionPtr value, parse_logic(true));
    while (skip_name("if")) {
      BUTTER_ASSIGN(ExpressionPtr test, parse_logic(true));
      ExpressionPtr otherwise;
      if (skip_name("else")) {
        BUTTER_ASSIGN(otherwise, parse_expression());
      }
      const int depth = std::max({depth_of(test), depth_of(value), depth_of(otherwise)});
      BUTTER_ASSIGN(
          value, make(at_line, depth, Conditional{std::move(test), std::move(value), std::move(otherwise)}));
    }
    return value;
  }

  // a or b, whose operands are a and b, whose operands are not a.
  Result<ExpressionPtr> parse_logic(bool is_or) {
    const int at_line = line();
    Logic logic{is_or, {}};
    do {
      BUTTER_ASSIGN(ExpressionPtr operand, is_or ? parse_logic(false) : parse_not());
      logic.operands.push_back(std::move(operand));
    } while (skip_name(is_or ? "or" : "and"));
    if (logic.operands.size() == 1) return std::move(logic.operands[0]);
    const int depth = depth_of_all(logic.operands);
    return make(at_line, depth, std::move(logic));
  }

  Result<ExpressionPtr> parse_not() {
    if (!current().is_name("not")) return parse_comparison();
    DepthGuard guard(nesting_, limits_.max_nesting);
    if (!guard.ok()) return too_deep();
    const int at_line = take().line;
    BUTTER_ASSIGN(ExpressionPtr operand, parse_not());
    const int depth = depth_of(operand);
    return make(at_line, depth, Unary{Unary::Op::kNot, std::move(operand)});
  }

  std::optional<CompareOp> take_compare_op() {
    struct Row {
      std::string_view symbol;
      CompareOp op;
    };
    constexpr Row kRows[] = {{"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
                             {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
                             {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
    for (const Row& row : kRows) {
      if (skip_operator(row.symbol)) return row.op;
    }
    if (skip_name("in")) return CompareOp::kIn;
    if (current().is_name("not") && following().is_name("in")) {
      take();
      take();
      return CompareOp::kNotIn;
    }
    return std::nullopt;
  }

  Result<ExpressionPtr> parse_comparison() {
    const int at_line = line();
    BUTTER_ASSIGN(ExpressionPtr first, parse_sum());
    Comparison comparison{std::move(first), {}};
    while (const std::optional<CompareOp> op = take_compare_op()) {
      BUTTER_ASSIGN(ExpressionPtr operand, parse_sum());
      comparison.rest.emplace_back(*op, std::move(operand));
    }
    if (comparison.rest.empty()) return std::move(comparison.first);
    const int depth = std::max(depth_of(comparison.first), depth_of_seconds(comparison.rest));
    return make(at_line, depth, std::move(comparison));
  }

  struct ArithmeticRow {
    std::string_view symbol;
    BinaryOp op;
  };
  // One level of left-associative operators; `parse_operand` is the level that binds tighter.
  Result<ExpressionPtr> parse_level(std::initializer_list<ArithmeticRow> rows,
                                    Result<ExpressionPtr> (Parser::*parse_operand)()) {
    const int at_line = line();
    BUTTER_ASSIGN(ExpressionPtr first, (this->*parse_operand)());
    Arithmetic chain{std::move(first), {}};
    while (true) {
      const auto row = std::find_if(rows.begin(), rows.end(),
                                    [&](const ArithmeticRow& r) { return current().is_operator(r.symbol); });
      if (row == rows.end()) break;
      take();
      BUTTER_ASSIGN(ExpressionPtr operand, (this->*parse_operand)());
      chain.rest.emplace_back(row->op, std::move(operand));
    }
    if (chain.rest.empty()) return std::move(chain.first);
    const int depth = std::max(depth_of(chain.first), depth_of_seconds(chain.rest));
    return make(at_line, depth, std::move(chain));
  }

  Result<ExpressionPtr> parse_sum() {
    return parse_level({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}}, &Parser::parse_concatenation);
  }

  Result<ExpressionPtr> parse_concatenation() {
    const int at_line = line();
    Concatenation chain;
    do {
      BUTTER_ASSIGN(ExpressionPtr part, parse_product());
      chain.parts.push_back(std::move(part));
    } while (skip_operator("~"));
    if (chain.parts.size() == 1) return std::move(chain.parts[0]);
    const int depth = depth_of_all(chain.parts);
    return make(at_line, depth, std::move(chain));
  }

  Result<ExpressionPtr> parse_product() {
    return parse_level({{"*", BinaryOp::kMultiply},
                        {"/", BinaryOp::kDivide},
                        {"//", BinaryOp::kFloorDivide},
                        {"%", BinaryOp::kModulo}},
                       &Parser::parse_power);
  }

  // From left to right, and after the signs: -2 ** 2 is 4, as in jinja2.
  Result<ExpressionPtr> parse_power() {
    return parse_level({{"**", BinaryOp::kPower}}, &Parser::parse_filtered_unary);
  }

  Result<ExpressionPtr> parse_filtered_unary() { return parse_unary(true); }

  Result<ExpressionPtr> parse_unary(bool with_filters) {
    ExpressionPtr node;
    if (current().is_operator("-") || current().is_operator("+")) {
      DepthGuard guard(nesting_, limits_.max_nesting);
      if (!guard.ok()) return too_deep();
      const Token& sign = take();
      const Unary::Op op = sign.text == "-" ? Unary::Op::kNegate : Unary::Op::kPlus;
      const int at_line = sign.line;
      BUTTER_ASSIGN(ExpressionPtr operand, parse_unary(false));
      const int depth = depth_of(operand);
      BUTTER_ASSIGN(node, make(at_line, depth, Unary{op, std::move(operand)}));
    } else {
      BUTTER_ASSIGN(node, parse_primary());
    }
    BUTTER_ASSIGN(node, parse_postfix(std::move(node)));
    if (!with_filters) return node;
    return parse_filters_and_tests(std::move(node));
  }

  Result<ExpressionPtr> parse_primary() {
    const int at_line = line();
    switch (current().kind) {
      case TokenKind::kName:
        return parse_name();
      case TokenKind::kString: {
        std::string text;
        while (current().kind == TokenKind::kString) text += take().text;
        return make(at_line, 0, Literal{Value::text(std::move(text))});
      }
      case TokenKind::kInteger:
        return make(at_line, 0, Literal{Value(take().integer)});
      case TokenKind::kFloat:
        return make(at_line, 0, Literal{Value(take().number)});
      default:
        break;
    }
    if (skip_operator("(")) {
      BUTTER_ASSIGN(ExpressionPtr inner, parse_tuple({.parenthesised = true}));
      BUTTER_TRY(expect_operator(")"));
      return inner;
    }
    if (skip_operator("[")) return parse_list(at_line);
    if (skip_operator("{")) return parse_dict(at_line);
    return error("unexpected {} in an expression", describe(current()));
  }

  static std::optional<Value> constant_of(std::string_view name) {
    if (name == "true" || name == "True") return Value(true);
    if (name == "false" || name == "False") return Value(false);
    if (name == "none" || name == "None") return Value();
    return std::nullopt;
  }

  Result<ExpressionPtr> parse_name() {
    const Token& token = take();
    if (std::optional<Value> constant = constant_of(token.text))
      return make(token.line, 0, Literal{*std::move(constant)});
    if (macro_ != nullptr) {
      macro_->takes_varargs = macro_->takes_varargs || token.text == "varargs";
      macro_->takes_kwargs = macro_->takes_kwargs || token.text == "kwargs";
      macro_->takes_caller = macro_->takes_caller || token.text == "caller";
    }
    return make(token.line, 0, Name{token.text});
  }

  struct TupleStyle {
    bool parenthesised = false;  // may be empty
    bool with_conditional = true;
    std::string_view end_name = {};  // a name that ends it: 'recursive' in for
  };

  bool at_tuple_end(std::string_view end_name) const {
    const Token& token = current();
    return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
           token.is_operator(")") || (!end_name.empty() && token.is_name(end_name));
  }

  // One expression, or a tuple if commas are there.
  Result<ExpressionPtr> parse_tuple(TupleStyle style) {
    DepthGuard guard(nesting_, limits_.max_nesting);
    if (!guard.ok()) return too_deep();
    const int at_line = line();
    SequenceLiteral tuple{Sequence::Flavour::kTuple, {}};
    bool is_tuple = false;
    while (true) {
      if (!tuple.items.empty()) BUTTER_TRY(expect_operator(","));
      if (at_tuple_end(style.end_name)) break;
      BUTTER_ASSIGN(ExpressionPtr item, parse_expression(style.with_conditional));
      tuple.items.push_back(std::move(item));
      if (!current().is_operator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!tuple.items.empty()) return std::move(tuple.items[0]);
      if (!style.parenthesised) return error("expected an expression, found {}", describe(current()));
    }
    const int depth = depth_of_all(tuple.items);
    return make(at_line, depth, std::move(tuple));
  }

  Result<ExpressionPtr> parse_list(int at_line) {
    SequenceLiteral list{Sequence::Flavour::kList, {}};
    while (!current().is_operator("]")) {
      if (!list.items.empty()) BUTTER_TRY(expect_operator(","));
      if (current().is_operator("]")) break;
      BUTTER_ASSIGN(ExpressionPtr item, parse_expression());
      list.items.push_back(std::move(item));
    }
    BUTTER_TRY(expect_operator("]"));
    const int depth = depth_of_all(list.items);
    return make(at_line, depth, std::move(list));
  }

  Result<ExpressionPtr> parse_dict(int at_line) {
    DictLiteral dict;
    int depth = 0;
    while (!current().is_operator("}")) {
      if (!dict.entries.empty()) BUTTER_TRY(expect_operator(","));
      if (current().is_operator("}")) break;
      BUTTER_ASSIGN(ExpressionPtr key, parse_expression());
      BUTTER_TRY(expect_operator(":"));
      BUTTER_ASSIGN(ExpressionPtr value, parse_expression());
      depth = std::max({depth, depth_of(key), depth_of(value)});
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
    BUTTER_TRY(expect_operator("}"));
    return make(at_line, depth, std::move(dict));
  }

  Result<ExpressionPtr> parse_postfix(ExpressionPtr node) {
    while (true) {
      if (current().is_operator(".")) {
        BUTTER_ASSIGN(node, parse_attribute(std::move(node)));
      } else if (current().is_operator("[")) {
        BUTTER_ASSIGN(node, parse_subscript(std::move(node)));
      } else if (current().is_operator("(")) {
        BUTTER_ASSIGN(node, parse_call(std::move(node)));
      } else {
        return node;
      }
    }
  }

  Result<ExpressionPtr> parse_attribute(ExpressionPtr object) {
    const int at_line = take().line;
    const int depth = depth_of(object);
    if (current().kind == TokenKind::kName)
      return make(at_line, depth, Attribute{std::move(object), take().text});
    if (current().kind != TokenKind::kInteger) {
      return error("expected a name or a number behind '.', found {}", describe(current()));
    }
    BUTTER_ASSIGN(ExpressionPtr key, make(at_line, 0, Literal{Value(take().integer)}));
    return make(at_line, depth, Item{std::move(object), std::move(key)});
  }

  // [key], [start:stop:step]
  Result<ExpressionPtr> parse_subscript(ExpressionPtr object) {
    const int at_line = take().line;
    ExpressionPtr parts[3];
    size_t colons = 0;
    if (current().is_operator("]")) return error("expected an index in '[]'");
    while (true) {
      const bool is_empty = current().is_operator(":") || current().is_operator("]");
      if (!is_empty) {
        BUTTER_ASSIGN(parts[colons], parse_expression());
      }
      if (colons == 2 || !skip_operator(":")) break;
      ++colons;
    }
    if (colons == 0 && current().is_operator(",")) {
      BUTTER_ASSIGN(parts[0], parse_rest_of_key(std::move(parts[0])));
    }
    BUTTER_TRY(expect_operator("]"));
    const int depth =
        std::max({depth_of(object), depth_of(parts[0]), depth_of(parts[1]), depth_of(parts[2])});
    if (colons == 0) return make(at_line, depth, Item{std::move(object), std::move(parts[0])});
    return make(at_line, depth,
                Slice{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
  }

  // [a, b] is the item whose key is a tuple.
  Result<ExpressionPtr> parse_rest_of_key(ExpressionPtr first) {
    const int at_line = line();
    SequenceLiteral tuple{Sequence::Flavour::kTuple, {}};
    int depth = depth_of(first);
    tuple.items.push_back(std::move(first));
    while (skip_operator(",")) {
      BUTTER_ASSIGN(ExpressionPtr item, parse_expression());
      depth = std::max(depth, depth_of(item));
      tuple.items.push_back(std::move(item));
    }
    return make(at_line, depth, std::move(tuple));
  }

  Result<ExpressionPtr> parse_call(ExpressionPtr callee) {
    const int at_line = line();
    BUTTER_ASSIGN(ArgumentList arguments, parse_arguments());
    const int depth = std::max(depth_of(callee), depth_of(arguments));
    return make(at_line, depth, CallExpression{std::move(callee), std::move(arguments)});
  }

  Result<ArgumentList> parse_arguments() {
    BUTTER_TRY(expect_operator("("));
    ArgumentList list;
    bool first = true;
    while (!current().is_operator(")")) {
      if (!first) BUTTER_TRY(expect_operator(","));
      first = false;
      if (current().is_operator(")")) break;
      BUTTER_TRY(parse_argument(list));
    }
    BUTTER_TRY(expect_operator(")"));
    return list;
  }

  Status parse_argument(ArgumentList& list) {
    const bool starred = list.more_positional || list.more_named;
    if (skip_operator("*")) {
      if (starred) return error("an argument list has '*' once, and before '**'");
      BUTTER_ASSIGN(list.more_positional, parse_expression());
    } else if (skip_operator("**")) {
      if (list.more_named) return error("an argument list has '**' once");
      BUTTER_ASSIGN(list.more_named, parse_expression());
    } else if (current().kind == TokenKind::kName && following().is_operator("=")) {
      if (list.more_named) return error("'**' is the last argument");
      std::string name = take().text;
      take();
      BUTTER_ASSIGN(ExpressionPtr value, parse_expression());
      if (list.named.size() == kMaxNamed) return too_many();
      for (const auto& [other, ignored] : list.named) {
        if (other == name) return error("the argument '{}' is given twice", name);
      }
      list.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (starred || !list.named.empty()) return error("an argument by position stands behind one by name");
      BUTTER_ASSIGN(ExpressionPtr value, parse_expression());
      list.positional.push_back(std::move(value));
    }
    return {};
  }

  Result<ExpressionPtr> parse_filters_and_tests(ExpressionPtr node) {
    while (true) {
      if (current().is_operator("|")) {
        const int at_line = take().line;
        BUTTER_ASSIGN(Filter filter, parse_filter());
        const int depth = std::max(depth_of(node), depth_of(filter.arguments));
        filter.input = std::move(node);
        BUTTER_ASSIGN(node, make(at_line, depth, std::move(filter)));
      } else if (current().is_name("is")) {
        BUTTER_ASSIGN(node, parse_test(std::move(node)));
      } else if (current().is_operator("(")) {
        BUTTER_ASSIGN(node, parse_call(std::move(node)));
      } else {
        return node;
      }
    }
  }

  // A dotted name, as filters and tests of extensions have.
  Result<std::string> parse_dotted_name() {
    BUTTER_ASSIGN(std::string name, expect_any_name());
    while (skip_operator(".")) {
      BUTTER_ASSIGN(const std::string part, expect_any_name());
      name += "." + part;
    }
    return name;
  }

  // name(arguments), without its input.
  Result<Filter> parse_filter() {
    const int at_line = line();
    BUTTER_ASSIGN(const std::string name, parse_dotted_name());
    const Builtin* row = find_filter(name);
    if (row == nullptr) {
      return error_at(at_line, StatusCode::kUnsupported, "there is no filter named '{}'",
                      name.substr(0, 100));
    }
    Filter filter{nullptr, row, {}};
    if (current().is_operator("(")) {
      BUTTER_ASSIGN(filter.arguments, parse_arguments());
    }
    return filter;
  }

  // Filters of a block: the first may stand without '|' (in {% filter %}).
  Result<std::vector<Filter>> parse_block_filters(bool starts_bare) {
    std::vector<Filter> filters;
    while (starts_bare || current().is_operator("|")) {
      if (!starts_bare) take();
      starts_bare = false;
      BUTTER_ASSIGN(Filter filter, parse_filter());
      filters.push_back(std::move(filter));
    }
    return filters;
  }

  bool at_test_argument() const {
    const Token& token = current();
    switch (token.kind) {
      case TokenKind::kName:
        return token.text != "else" && token.text != "or" && token.text != "and";
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return token.is_operator("[") || token.is_operator("{");
    }
  }

  Result<ExpressionPtr> parse_test(ExpressionPtr input) {
    const int at_line = take().line;
    const bool negated = skip_name("not");
    BUTTER_ASSIGN(const std::string name, parse_dotted_name());
    const Builtin* row = find_test(name);
    if (row == nullptr) {
      return error_at(at_line, StatusCode::kUnsupported, "there is no test named '{}'", name.substr(0, 100));
    }
    Test test{std::move(input), row, {}};
    if (current().is_operator("(")) {
      BUTTER_ASSIGN(test.arguments, parse_arguments());
    } else if (at_test_argument()) {
      if (current().is_name("is")) return error("tests cannot be chained with 'is'");
      BUTTER_ASSIGN(ExpressionPtr argument, parse_primary());
      BUTTER_ASSIGN(argument, parse_postfix(std::move(argument)));
      test.arguments.positional.push_back(std::move(argument));
    }
    const int depth = std::max(depth_of(test.input), depth_of(test.arguments));
    BUTTER_ASSIGN(ExpressionPtr node, make(at_line, depth, std::move(test)));
    if (!negated) return node;
    return make(at_line, depth + 1, Unary{Unary::Op::kNot, std::move(node)});
  }

  // ---- statements ----

  static bool ends_here(const Token& token, std::initializer_list<std::string_view> ends) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return token.is_name(end); });
  }

  // Text, outputs and statements up to a tag of one of the names (its '{%' is taken, its name is not), or to
  // the end of the template if there are none.
  Result<Body> parse_body(std::initializer_list<std::string_view> ends) {
    DepthGuard guard(nesting_, limits_.max_nesting);
    if (!guard.ok()) return too_deep();
    Body body;
    while (true) {
      const Token& token = current();
      switch (token.kind) {
        case TokenKind::kData:
          body.push_back({token.line, Data{Value::text(token.text)}});
          take();
          break;
        case TokenKind::kVariableBegin: {
          take();
          BUTTER_ASSIGN(ExpressionPtr value, parse_tuple({}));
          BUTTER_TRY(expect_kind(TokenKind::kVariableEnd, "'}}'"));
          Output output;
          output.values.push_back(std::move(value));
          body.push_back({token.line, std::move(output)});
          break;
        }
        case TokenKind::kBlockBegin: {
          take();
          if (ends_here(current(), ends)) return body;
          BUTTER_ASSIGN(Statement statement, parse_statement());
          body.push_back(std::move(statement));
          BUTTER_TRY(expect_kind(TokenKind::kBlockEnd, "'%}'"));
          break;
        }
        default:
          if (ends.size() == 0) return body;
          return error("expected '{}', found {}", *(ends.end() - 1), describe(token));
      }
    }
  }

  // The rest of a block's first tag, then its body; the tag that ends it is left at its name.
  Result<Body> parse_block_body(std::initializer_list<std::string_view> ends) {
    skip_operator(":");
    BUTTER_TRY(expect_kind(TokenKind::kBlockEnd, "'%}'"));
    return parse_body(ends);
  }

  // The same with one end, which is taken.
  Result<Body> parse_whole_block(std::string_view end) {
    BUTTER_ASSIGN(Body body, parse_block_body({end}));
    take();
    return body;
  }

  Result<Statement> parse_statement() {
    struct Row {
      std::string_view tag;
      Result<Statement> (Parser::*parse)(int at_line);
    };
    constexpr Row kRows[] = {{"if", &Parser::parse_if},           {"for", &Parser::parse_for},
                             {"set", &Parser::parse_set},         {"macro", &Parser::parse_macro},
                             {"call", &Parser::parse_call_block}, {"filter", &Parser::parse_filter_block},
                             {"with", &Parser::parse_with},       {"generation", &Parser::parse_generation},
                             {"break", &Parser::parse_break},     {"continue", &Parser::parse_continue},
                             {"print", &Parser::parse_print}};
    const Token& token = current();
    if (token.kind != TokenKind::kName) return error("expected the name of a tag, found {}", describe(token));
    for (const Row& row : kRows) {
      if (!token.is_name(row.tag)) continue;
      take();
      return (this->*row.parse)(token.line);
    }
    const bool known = std::find(std::begin(kUnsupportedTags), std::end(kUnsupportedTags), token.text) !=
                       std::end(kUnsupportedTags);
    if (known)
      return error_at(token.line, StatusCode::kUnsupported, "the tag '{}' is not supported", token.text);
    return error("unknown tag {}", describe(token));
  }

  Result<Statement> parse_if(int at_line) {
    If node;
    while (true) {
      BUTTER_ASSIGN(ExpressionPtr test, parse_tuple({.with_conditional = false}));
      BUTTER_ASSIGN(Body body, parse_block_body({"elif", "else", "endif"}));
      node.branches.push_back({std::move(test), std::move(body)});
      const std::string end = take().text;
      if (end == "elif") continue;
      if (end == "else") {
        BUTTER_ASSIGN(Body otherwise, parse_whole_block("endif"));
        node.branches.push_back({nullptr, std::move(otherwise)});
      }
      return Statement{at_line, std::move(node)};
    }
  }

  Result<Statement> parse_for(int at_line) {
    For node;
    BUTTER_ASSIGN(node.target, parse_target({.end_name = "in"}));
    if (names(node.target, "loop")) return error("a for loop cannot assign to 'loop'");
    BUTTER_TRY(expect_name("in"));
    BUTTER_ASSIGN(node.items, parse_tuple({.with_conditional = false, .end_name = "recursive"}));
    if (skip_name("if")) {
      BUTTER_ASSIGN(node.filter, parse_expression());
    }
    node.is_recursive = skip_name("recursive");
    ++loops_;
    Result<Body> body = parse_block_body({"endfor", "else"});
    --loops_;
    BUTTER_ASSIGN(node.body, std::move(body));
    if (take().text == "else") {
      BUTTER_ASSIGN(node.otherwise, parse_whole_block("endfor"));
    }
    return Statement{at_line, std::move(node)};
  }

  static bool names(const Target& target, std::string_view name) {
    if (target.kind == Target::Kind::kName) return target.name == name;
    return std::any_of(target.parts.begin(), target.parts.end(),
                       [&](const Target& t) { return names(t, name); });
  }

  Result<Statement> parse_set(int at_line) {
    BUTTER_ASSIGN(Target target, parse_target({.with_attributes = true}));
    if (skip_operator("=")) {
      BUTTER_ASSIGN(ExpressionPtr value, parse_tuple({}));
      return Statement{at_line, Set{std::move(target), std::move(value)}};
    }
    SetBlock node{std::move(target), {}, {}};
    BUTTER_ASSIGN(node.filters, parse_block_filters(false));
    BUTTER_ASSIGN(node.body, parse_whole_block("endset"));
    return Statement{at_line, std::move(node)};
  }

  // A body which jinja2 compiles to a function: no break out of it to a loop around it.
  Result<Body> parse_scoped_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Result<Body> body = parse_whole_block(end);
    loops_ = loops;
    return body;
  }

  struct TargetStyle {
    bool with_attributes = false;  // namespace.attribute
    std::string_view end_name = {};
  };

  Result<Target> parse_target(TargetStyle style) {
    DepthGuard guard(nesting_, limits_.max_nesting);
    if (!guard.ok()) return too_deep();
    Target tuple{Target::Kind::kTuple, line(), {}, {}, {}};
    bool is_tuple = false;
    while (true) {
      if (!tuple.parts.empty()) BUTTER_TRY(expect_operator(","));
      if (at_tuple_end(style.end_name)) break;
      BUTTER_ASSIGN(Target part, parse_single_target(style));
      tuple.parts.push_back(std::move(part));
      if (!current().is_operator(",")) break;
      is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (tuple.parts.empty()) return error("expected a name to assign to, found {}", describe(current()));
    // Not a reference to the moved-from tuple's own part.
    Target single = std::move(tuple.parts[0]);
    return single;
  }

  Result<Target> parse_single_target(TargetStyle style) {
    if (skip_operator("(")) {
      BUTTER_ASSIGN(Target inner, parse_target({.with_attributes = style.with_attributes}));
      BUTTER_TRY(expect_operator(")"));
      return inner;
    }
    Target target;
    target.line = line();
    BUTTER_ASSIGN(target.name, expect_any_name());
    if (constant_of(target.name)) return error("cannot assign to '{}'", target.name);
    if (style.with_attributes && skip_operator(".")) {
      target.kind = Target::Kind::kAttribute;
      BUTTER_ASSIGN(target.attribute, expect_any_name());
    }
    return target;
  }

  // ---- macros and blocks with scopes of their own ----

  Status parse_parameters(MacroDefinition& macro) {
    BUTTER_TRY(expect_operator("("));
    while (!current().is_operator(")")) {
      if (!macro.parameters.empty()) BUTTER_TRY(expect_operator(","));
      BUTTER_ASSIGN(std::string name, expect_any_name());
      if (constant_of(name)) return error("cannot assign to '{}'", name);
      if (macro.parameters.size() == kMaxNamed) return too_many();
      for (const auto& [other, ignored] : macro.parameters) {
        if (other == name) return error("the parameter '{}' is named twice", name);
      }
      ExpressionPtr otherwise;
      if (skip_operator("=")) {
        BUTTER_ASSIGN(otherwise, parse_expression());
      } else if (!macro.parameters.empty() && macro.parameters.back().second) {
        return error("the parameter '{}' has no default and stands behind one that has", name);
      }
      macro.parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    return expect_operator(")");
  }

  Status parse_macro_body(MacroDefinition& macro, std::string_view end) {
    MacroDefinition* outer = std::exchange(macro_, &macro);
    Result<Body> body = parse_scoped_block(end);
    macro_ = outer;
    BUTTER_ASSIGN(macro.body, std::move(body));
    const auto declares = [&](std::string_view name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const auto& p) { return p.first == name; });
    };
    macro.takes_varargs = macro.takes_varargs && !declares("varargs");
    macro.takes_kwargs = macro.takes_kwargs && !declares("kwargs");
    if (macro.takes_caller && declares("caller")) {
      return error_at(line(), StatusCode::kUnsupported, "a macro parameter named 'caller' is not supported");
    }
    return {};
  }

  Result<Statement> parse_macro(int at_line) {
    MacroDefinition macro;
    BUTTER_ASSIGN(macro.name, expect_any_name());
    if (constant_of(macro.name)) return error("cannot assign to '{}'", macro.name);
    BUTTER_TRY(parse_parameters(macro));
    BUTTER_TRY(parse_macro_body(macro, "endmacro"));
    return Statement{at_line, std::move(macro)};
  }

  Result<Statement> parse_call_block(int at_line) {
    CallBlock node;
    node.caller.name = "caller";
    if (current().is_operator("(")) BUTTER_TRY(parse_parameters(node.caller));
    BUTTER_ASSIGN(node.call, parse_expression());
    if (!std::holds_alternative<CallExpression>(node.call->node)) return error("expected a call of a macro");
    BUTTER_TRY(parse_macro_body(node.caller, "endcall"));
    return Statement{at_line, std::move(node)};
  }

  Result<Statement> parse_filter_block(int at_line) {
    FilterBlock node;
    BUTTER_ASSIGN(node.filters, parse_block_filters(true));
    BUTTER_ASSIGN(node.body, parse_whole_block("endfilter"));
    return Statement{at_line, std::move(node)};
  }

  Result<Statement> parse_with(int at_line) {
    With node;
    while (current().kind != TokenKind::kBlockEnd) {
      if (!node.bindings.empty()) BUTTER_TRY(expect_operator(","));
      BUTTER_ASSIGN(Target target, parse_single_target({}));
      BUTTER_TRY(expect_operator("="));
      BUTTER_ASSIGN(ExpressionPtr value, parse_expression());
      node.bindings.emplace_back(std::move(target), std::move(value));
    }
    BUTTER_ASSIGN(node.body, parse_whole_block("endwith"));
    return Statement{at_line, std::move(node)};
  }

  Result<Statement> parse_generation(int at_line) {
    BUTTER_ASSIGN(Body body, parse_scoped_block("endgeneration"));
    return Statement{at_line, Generation{std::move(body)}};
  }

  Result<Statement> parse_break(int at_line) {
    if (loops_ == 0)
      return error_at(at_line, StatusCode::kInvalidArgument, "'break' stands outside a for loop");
    return Statement{at_line, Break{}};
  }

  Result<Statement> parse_continue(int at_line) {
    if (loops_ == 0)
      return error_at(at_line, StatusCode::kInvalidArgument, "'continue' stands outside a for loop");
    return Statement{at_line, Continue{}};
  }

  Result<Statement> parse_print(int at_line) {
    Output node;
    while (current().kind != TokenKind::kBlockEnd) {
      if (!node.values.empty()) BUTTER_TRY(expect_operator(","));
      BUTTER_ASSIGN(ExpressionPtr value, parse_expression());
      node.values.push_back(std::move(value));
    }
    return Statement{at_line, std::move(node)};
  }

  std::vector<Token> tokens_;
  const Limits& limits_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                     // around the current place, inside the innermost scope
  MacroDefinition* macro_ = nullptr;  // whose body is parsed
};

}  // namespace

Result<Program> parse_program(std::string_view source, const Limits& limits) {
  BUTTER_ASSIGN(std::vector<Token> tokens, tokenize(source, limits));
  return Parser(std::move(tokens), limits).run();
}

}  // namespace butter::jinja
