#include "cli/quality.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/terminal.h"

namespace butter::cli {

std::string spoken_kld(double nats) {
  if (std::isnan(nats)) return "-";
  return nats != 0 && nats < 0.001 ? fmt::format("{:.2e}", nats) : fmt::format("{:.5f}", nats);
}

std::optional<QualityCard> find_quality_card(const std::string& model) {
  auto card = read_quality_card(model);
  if (card) return std::move(*card);
  note(fmt::format("note: {}", card.error().message()));
  return std::nullopt;
}

}  // namespace butter::cli
