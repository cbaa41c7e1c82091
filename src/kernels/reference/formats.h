// The reference codecs, one file a format: plain scalar text, the specification of each.
#pragma once

#include "kernels/row_format.h"

namespace butter::reference {

const RowCodec& raw_codec();

}  // namespace butter::reference
