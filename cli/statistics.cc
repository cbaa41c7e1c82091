#include "cli/statistics.h"

#include <fmt/format.h>

#include "cli/terminal.h"

namespace butter::cli {

std::string statistics_of(const GenerateResult& result) {
  const int64_t fed = result.prompt_tokens - result.reused_tokens;
  const double ratio = result.kv_bytes > 0
                           ? static_cast<double>(result.kv_raw_bytes) / static_cast<double>(result.kv_bytes)
                           : 1;
  const std::string reused =
      result.reused_tokens > 0 ? fmt::format(" ({} more from the cache)", result.reused_tokens) : "";
  return fmt::format(
      "prefill {} tokens{}, {:.0f} tok/s, first token after {:.0f} ms; decode {} tokens, {:.1f} tok/s; ended "
      "by {}\n"
      "cache {} ({} raw, ratio {:.2f})",
      fed, reused, result.prefill_tps(), result.time_to_first_token * 1000, result.token_ids.size(),
      result.decode_tps(), result.finish_reason, spoken_bytes(result.kv_bytes),
      spoken_bytes(result.kv_raw_bytes), ratio);
}

}  // namespace butter::cli
