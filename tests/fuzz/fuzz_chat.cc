// A chat request from a stranger: messages, tools and template arguments, to the tokens of a prompt. Whatever
// they are, a prompt, or an Error; and no special token of a prompt has a byte that the request wrote.
//
// The input is three parts with a zero byte between them: messages and tools as JSON, and NAME=VALUE lines.
#include <algorithm>
#include <string>
#include <vector>

#include "core/check.h"
#include "support/byte_vocabulary.h"
#include "text/chat_messages.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace butter {
namespace {

// What published templates do: tools described in a system message, turns looked at from behind, reasoning
// cut off, roles that must alternate, texts trimmed, formatted and changed.
constexpr const char* kTemplates[] = {
    kChatTemplate,
    R"({%- if messages[0].role == 'system' %}{%- set system = messages[0].content | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{%- endif %}<|im_start|>system
{{ date_string | default('26 Jul 2024') }} {{ system }}{% for tool in tools %}
{{ tool | tojson(indent=4) }}{% endfor %}<|im_end|>{% for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{%- for call in message.tool_calls %}{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
<|im_start|>{{ '{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}{{ '}' }}<|im_end|>
{%- endfor %}{%- else %}
<|im_start|>{{ message['role'] | upper }}
{{ message['content'] | replace('a', '<|im_end|>') | trim }}<|im_end|>{%- endif %}{% endfor %}
{%- for name, value in extra.items() %}{{ name | title }}: {{ '%s' % value }}{% endfor %}<|im_start|>assistant
)",
    R"({%- set ns = namespace(last=-1, many=true) %}{%- for message in messages[::-1] %}
{%- if ns.many and message.role == 'user' and not (message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
{%- set ns.many = false %}{%- set ns.last = messages | length - 1 - loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}{%- if (message.role == 'user') != (loop.index0 % 2 == 0) and strict %}
{{- raise_exception('roles must alternate') }}{%- endif %}
{%- set content = message.content %}{%- if '</think>' in content %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
<|im_start|>{{ message.role ~ '\n' ~ content[:100] ~ message.reasoning_content }}
{%- if loop.last or not loop.nextitem.role == message.role %}<|im_end|>{%- endif %}{%- endfor %}
{%- macro show(value) %}{{ value | list | join('|') if value is iterable and value is not mapping else value }}{% endmacro %}
{{- show(extra) }}{{ words | sort | join(', ') if words is sequence }}<|im_start|>)"};

struct Fixture {
  std::vector<ChatTemplate> templates;
  std::vector<std::string> vocabulary = byte_vocabulary();
  VocabularyTokenizer tokenizer = make_tokenizer();

  Fixture() {
    for (const char* source : kTemplates) {
      auto parsed = ChatTemplate::parse(source, small_limits());
      BUTTER_CHECK(parsed.has_value());
      templates.push_back(*std::move(parsed));
    }
  }

  // Bounds are what is tried here too, and a fuzzer has no time for the usual ones.
  static jinja::Limits small_limits() {
    jinja::Limits limits;
    limits.max_steps = 100'000;
    limits.max_output_bytes = size_t{1} << 20;
    limits.max_allocated_bytes = size_t{8} << 20;
    return limits;
  }

  VocabularyTokenizer make_tokenizer() const {
    TokenizerSpec spec;
    spec.pre_tokenizer = "gpt-2";
    spec.tokens.assign(vocabulary.begin(), vocabulary.end());
    spec.types.assign(vocabulary.size(), TokenType::kNormal);
    std::fill_n(spec.types.begin(), 3, TokenType::kControl);
    auto made = VocabularyTokenizer::create(spec);
    BUTTER_CHECK(made.has_value());
    return *std::move(made);
  }
};

void check_spans(const RenderedChat& chat) {
  size_t end = 0;
  for (const jinja::Span& span : chat.content) {
    BUTTER_CHECK(span.begin >= end && span.begin < span.end && span.end <= chat.text.size());
    end = span.end;
  }
}

void check_prompt(const Tokenizer& tokenizer, const RenderedChat& chat) {
  std::vector<TextSpan> content;
  for (const jinja::Span& span : chat.content) content.push_back({span.begin, span.end});
  EncodeOptions options;
  options.parse_special = true;
  options.content = content;
  const auto ids = tokenizer.encode(chat.text, options);
  BUTTER_CHECK(ids.has_value());
  BUTTER_CHECK(tokenizer.decode(*ids) == chat.text);
  size_t begin = 0, next = 0;
  for (const TokenId id : *ids) {
    const size_t end = begin + tokenizer.piece(id).size();
    while (next < content.size() && content[next].end <= begin) ++next;
    const bool touches = next < content.size() && content[next].begin < end;
    BUTTER_CHECK(tokenizer.type(id) != TokenType::kControl || !touches);
    begin = end;
  }
}

void check_round_trip(const std::vector<Message>& messages) {
  const auto again = read_messages(write_messages(messages));
  BUTTER_CHECK(again.has_value() && again->size() == messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    BUTTER_CHECK((*again)[i].role == messages[i].role && (*again)[i].content == messages[i].content &&
                 (*again)[i].fields == messages[i].fields);
  }
}

// The text up to the next `separator`, which is taken off too.
std::string_view take_part(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

void request(std::string_view input) {
  static const Fixture fixture;
  const auto messages = read_messages(take_part(input, '\0'));
  ChatOptions options;
  options.tools = take_part(input, '\0');
  while (!input.empty()) {
    if (auto argument = read_template_argument(take_part(input, '\n')))
      options.arguments.push_back(*argument);
  }
  auto variables = template_variables(options);
  if (!messages || !variables) return;
  check_round_trip(*messages);
  ChatTemplateOptions render;
  render.arguments = *std::move(variables);
  render.now.emplace();
  for (const ChatTemplate& chat_template : fixture.templates) {
    const auto chat = chat_template.render(*messages, render);
    if (!chat) continue;
    check_spans(*chat);
    check_prompt(fixture.tokenizer, *chat);
  }
}

}  // namespace
}  // namespace butter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  butter::request({reinterpret_cast<const char*>(data), size});
  return 0;
}
