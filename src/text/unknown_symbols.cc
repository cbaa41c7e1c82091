#include "text/unknown_symbols.h"

#include <algorithm>

namespace butter {

void UnknownSymbols::append(std::string_view run, std::vector<int32_t>* ids) const {
  const auto id_of = [&](char byte) { return byte_ids[static_cast<uint8_t>(byte)]; };
  if (std::ranges::all_of(run, [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : run) ids->push_back(id_of(byte));
  } else if (unknown_id >= 0) {
    ids->push_back(unknown_id);
  }
}

}  // namespace butter
