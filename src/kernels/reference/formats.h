// The reference codecs, one file a format: plain scalar text, the specification of each.
#pragma once

#include "kernels/row_format.h"

namespace butter::reference {

const RowCodec& raw_codec();
const RowCodec& aura_codec();    // bits 2, 3, 4, 8
const RowCodec& affine_codec();  // bits 4, 6, 8; any group
// Rounds to the raw type: the encode() of every raw codec (a page of raw rows is its record already).
void encode_raw(const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                std::byte* scratch);

}  // namespace butter::reference
