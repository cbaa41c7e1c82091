// Scheme strings: which row format keys and values are sealed into.
//
//   raw            16-bit rows
//   affine8        one format for both sides (with a group: affine4g64)
//   aura3v2        the aura formats of keys and of values; aura is aura4v4, affine is affine8
//   k=F,v=F        any format for keys with any for values
//   ...:plain      without pinned rows and without a centre, for comparison
//   ...:spanN      a prompt reads raw the whole span of N positions (a multiple of 64) that it stands in
//
// One parsed type (KvScheme, kernels/kv_layout.h), one parser and one printer; a name that does not exist is
// an error that lists those that do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "kernels/kv_layout.h"

namespace butter {

// `raw` is the type of raw rows, which the model and the device decide.
Result<KvScheme> parse_scheme(std::string_view text, DType raw);
std::string scheme_name(const KvScheme& scheme);

// The schemes that a user chooses from, the raw cache first, then by size.
const std::vector<std::string>& scheme_choices();

}  // namespace butter
