// What commands say of a scheme's quality.
#pragma once

#include <optional>
#include <string>

#include "butter/quality_card.h"

namespace butter::cli {

// A KLD with three digits at least; a dash where it was not measured.
std::string spoken_kld(double nats);

// The card of a model, if it has one. One that does not read is noted on stderr, and is none.
std::optional<QualityCard> find_quality_card(const std::string& model);

}  // namespace butter::cli
