// UnknownSymbols: what becomes of text that a vocabulary of pieces has no token for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace butter {

struct UnknownSymbols {
  UnknownSymbols() { byte_ids.fill(-1); }

  std::array<int32_t, 256> byte_ids;  // -1: there is none
  int32_t unknown_id = -1;            // -1: the text vanishes

  // Appends the bytes of a run of such text, where all of them have a token, else one unknown token.
  void append(std::string_view run, std::vector<int32_t>* ids) const;
};

}  // namespace butter
