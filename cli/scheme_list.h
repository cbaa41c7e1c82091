// Lists of cache schemes, as bench and eval take them: "raw,affine4,k=affine8,v=aura2".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace butter::cli {

// "k=a,v=b" is one scheme: a v= belongs to the k= before it, and the other way round. Parts may be empty.
std::vector<std::string> split_schemes(std::string_view list);

}  // namespace butter::cli
