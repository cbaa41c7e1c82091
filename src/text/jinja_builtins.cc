#include "text/jinja_builtins.h"

#include <algorithm>

namespace butter::jinja {
namespace {

// The parameters that the row names.
size_t parameter_count(const Builtin& row) {
  return static_cast<size_t>(std::find(row.parameters.begin(), row.parameters.end(), std::string_view()) -
                             row.parameters.begin());
}

Status bind(const Builtin& row, std::string_view what, Call& call) {
  const size_t count = parameter_count(row);
  const Arguments& arguments = call.arguments;
  if (arguments.positional.size() > count) {
    return fail(StatusCode::kInvalidArgument, "{} '{}' takes at most {} arguments, found {}", what, row.name,
                count, arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) call.values[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(row.parameters.begin(), row.parameters.begin() + count, name);
    const size_t i = static_cast<size_t>(place - row.parameters.begin());
    if (i == count || row.passing == Passing::kByPosition) {
      return fail(StatusCode::kInvalidArgument, "{} '{}' has no argument named '{}'", what, row.name, name);
    }
    if (call.values[i] != nullptr) {
      return fail(StatusCode::kInvalidArgument, "{} '{}' is given its argument '{}' twice", what, row.name,
                  name);
    }
    call.values[i] = &value;
  }
  for (size_t i = 0; i < row.required; ++i) {
    if (call.values[i] == nullptr) {
      return fail(StatusCode::kInvalidArgument, "{} '{}' needs its argument '{}'", what, row.name,
                  row.parameters[i]);
    }
  }
  return {};
}

Result<Value> call_by_name(Runtime& runtime, const Builtin* (*find)(std::string_view), std::string_view what,
                           const Value& name, const Value& input, const Arguments& arguments) {
  const Builtin* row = name.is(Kind::kText) ? find(name.bytes()) : nullptr;
  if (row == nullptr) {
    return fail(StatusCode::kUnsupported, "there is no {} named '{}'", what,
                name.is(Kind::kText) ? std::string_view(name.bytes()).substr(0, 100) : name.type_name());
  }
  DepthGuard guard(runtime.depth(), runtime.limits().max_eval_depth);
  if (!guard.ok()) return fail(runtime.too_deep().error());
  return call_builtin(runtime, *row, what, input, arguments);
}

}  // namespace

Status Runtime::too_deep() const {
  return fail(StatusCode::kLimit,
              "the template nests deeper than {} calls, blocks and expressions (max_eval_depth)",
              limits().max_eval_depth);
}

Result<Value> Runtime::make(Sequence::Flavour flavour, std::vector<Value> items) {
  BUTTER_TRY(budget_.use_bytes(sizeof(Sequence) + items.size() * sizeof(Value)));
  auto sequence = Sequence::make(flavour, std::move(items));
  if (sequence->depth > limits().max_value_depth) {
    return fail(StatusCode::kLimit, "a list nests deeper than {} (max_value_depth)",
                limits().max_value_depth);
  }
  return Value(std::move(sequence));
}

Result<Value> Runtime::make(Dict dict) {
  // An entry costs its two values, its key's encoding and the index.
  BUTTER_TRY(budget_.use_bytes(sizeof(Dict) + dict.entries().size() * 128));
  if (dict.depth() > limits().max_value_depth) {
    return fail(StatusCode::kLimit, "a dict nests deeper than {} (max_value_depth)",
                limits().max_value_depth);
  }
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict))));
}

Result<Value> Runtime::make(TextBuilder& builder) {
  BUTTER_TRY(budget_.use_bytes(sizeof(Text)));
  BUTTER_ASSIGN(Text text, builder.finish());
  return Value(std::move(text));
}

Result<Value> Runtime::make_slice(const Text& text, size_t begin, size_t end) {
  TextBuilder builder(budget_);
  builder.append(text, begin, end);
  BUTTER_TRY(budget_.use_bytes(sizeof(Text)));
  BUTTER_ASSIGN(Text slice, builder.finish());
  slice.markup = text.markup;
  return Value(std::move(slice));
}

Result<int64_t> Call::integer(size_t i, int64_t otherwise) const {
  if (values[i] == nullptr) return otherwise;
  if (!values[i]->is_integral()) {
    return fail(StatusCode::kInvalidArgument, "argument {} must be an int, found {}", i + 1,
                values[i]->type_name());
  }
  return values[i]->as_int();
}

Result<Value> call_builtin(Runtime& runtime, const Builtin& row, std::string_view what, const Value& input,
                           const Arguments& arguments) {
  Call call{runtime, input, arguments};
  if (row.passing != Passing::kAny) BUTTER_TRY(bind(row, what, call));
  Result<Value> result = row.function(call);
  if (!result) return fail(result.error().within(fmt::format("{} '{}'", what, row.name)));
  return result;
}

Result<Value> call_filter(Runtime& runtime, const Value& name, const Value& input,
                          const Arguments& arguments) {
  return call_by_name(runtime, find_filter, "filter", name, input, arguments);
}

Result<Value> call_test(Runtime& runtime, const Value& name, const Value& input, const Arguments& arguments) {
  return call_by_name(runtime, find_test, "test", name, input, arguments);
}

}  // namespace butter::jinja
