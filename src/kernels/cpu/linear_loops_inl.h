// Loops over the outputs and input rows of a linear op: the same for every instruction set whose file defines
// panel_block (coded weights) and float_block, and kWeightRows, the rows of a float weight that one block
// takes.
//
// Included inside the anonymous namespace of such a file, so that every copy is compiled for its own set.

template <LinearForm form>
void multiply_codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
                    const LinearTarget& target) {
  const int64_t row_bytes = weight.columns / kGroup * kInt8GroupBytes;
  for (int64_t n = begin; n < end; n += kPanelRows) {
    const int lanes = static_cast<int>(weight.rows - n < kPanelRows ? weight.rows - n : kPanelRows);
    const Panel<form> panel(weight, n);
    const auto* x = reinterpret_cast<const byte_t*>(rows.data);
    float* y = target.y;
    int64_t left = rows.rows;
    for (; left >= 8; left -= 8, x += 8 * row_bytes, y += 4 * target.stride)
      panel_block<form, 8>(panel, lanes, x, n, y, target);
    switch (left) {
      case 6:
        panel_block<form, 6>(panel, lanes, x, n, y, target);
        break;
      case 4:
        panel_block<form, 4>(panel, lanes, x, n, y, target);
        break;
      case 2:
        panel_block<form, 2>(panel, lanes, x, n, y, target);
        break;
      default:
        break;
    }
  }
}

template <LinearForm form, int N>
void float_rows(const LinearMatrix& weight, const FloatRows& rows, int64_t n, const LinearTarget& target) {
  const byte_t* w = reinterpret_cast<const byte_t*>(weight.data) + n * weight.columns * kElementBytes<form>;
  const float* x = rows.x;
  float* y = target.y;
  int64_t left = rows.rows;
  for (; left >= 4; left -= 4, x += 4 * rows.stride, y += 4 * target.stride)
    float_block<form, N, 4>(w, weight.columns, x, rows.stride, n, y, target);
  for (; left > 0; --left, x += rows.stride, y += target.stride)
    float_block<form, N, 1>(w, weight.columns, x, rows.stride, n, y, target);
}

template <LinearForm form>
void multiply_floats(const LinearMatrix& weight, const FloatRows& rows, int64_t begin, int64_t end,
                     const LinearTarget& target) {
  int64_t n = begin;
  for (; n + kWeightRows <= end; n += kWeightRows) float_rows<form, kWeightRows>(weight, rows, n, target);
  for (; n < end; ++n) float_rows<form, 1>(weight, rows, n, target);
}
