// Uses all that a tokenizer of a stranger's file offers, so that the sanitizers see a view that leaves it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/check.h"
#include "fuzz/touch_bytes.h"
#include "text/tokenizer.h"

namespace butter {

inline const std::vector<std::string>& fuzz_texts() {
  static const auto* const kTexts =
      new std::vector<std::string>{"",
                                   " ",
                                   "hello world, it's 1234",
                                   "<s> <|im_end|></s>\n\n x",
                                   "e\u0301\u00e9 \u3000\u2581\u2581ab\u2581",
                                   "\u6f22\u5b57 \U0001F600\u200d",
                                   "a\xFF\xE2\x82z\xC3",
                                   std::string("a\0b", 3),
                                   std::string(300, 'a'),
                                   std::string(200, ' ') + "\t\r\n",
                                   "aaaaabbbbbaaaabbbab ab ba <tool>abab <TOOL> a<tool>"};
  return *kTexts;
}

inline void check_ids(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    BUTTER_CHECK(id >= 0 && id < tokenizer.vocab_size());
    touch(tokenizer.piece(id));
  }
  std::string streamed;
  StreamDetokenizer stream(tokenizer);
  for (const TokenId id : ids) streamed += stream.push(id);
  touch(streamed + stream.finish());
  touch(tokenizer.decode(ids, {.skip_special = true}));
}

inline void use(const Result<VocabularyTokenizer>& made) {
  if (!made) return touch(made.error().message());
  for (TokenId id = -1; id <= std::min<TokenId>(static_cast<TokenId>(made->vocab_size()), 500); ++id) {
    touch(made->piece(id));
    (void)made->type(id);
    touch(made->decode({&id, 1}, {}));
  }
  for (const std::string& text : fuzz_texts()) {
    const std::vector<TextSpan> content = {{1, 3}, {5, text.size() / 2 + 5}};
    for (const bool parse_special : {false, true}) {
      if (const auto ids = made->encode(text, {.parse_special = parse_special})) check_ids(*made, *ids);
    }
    if (const auto ids = made->encode(text, {.parse_special = true, .content = content}))
      check_ids(*made, *ids);
  }
}

}  // namespace butter
