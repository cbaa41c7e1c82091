// aura with 8 bits on the CPU: records in the order of codes_layout.h, the kernels of codes_inl.h. Widths
// that this order cannot take keep the exchange form, and the reference codec's plain loops.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/aura_int8.h"
#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/codes_layout.h"
#include "kernels/cpu/rotate.h"
#include "kernels/reference/formats.h"
#include "kernels/scale_byte.h"

namespace butter::cpu {
namespace {

constexpr float kLargestCode = 127;
constexpr float kLargestValue = 0x1p56F;  // as in the reference: larger ones are clamped

const RowCodec& plain() {
  return reference::aura_codec();
}
bool fits(const RowShape& shape) {
  return codes_fit(shape.dim);
}
CodeOrder order_of(const RowShape& shape) {
  return {shape.dim, 8, shape.side, true};
}

void import_record(const RowShape& shape, const std::byte* exchange, std::byte* record) {
  const int64_t codes = code_bytes(shape.dim, 8);
  if (!fits(shape)) {
    std::memcpy(record, exchange, static_cast<size_t>(codes + kPageRows));
    return;
  }
  std::memcpy(record, exchange + codes, kPageRows);
  import_codes(order_of(shape), exchange, record + kPageRows);
}

void export_record(const RowShape& shape, const std::byte* record, std::byte* exchange) {
  const int64_t codes = code_bytes(shape.dim, 8);
  if (!fits(shape)) {
    std::memcpy(exchange, record, static_cast<size_t>(codes + kPageRows));
    return;
  }
  export_codes(order_of(shape), record + kPageRows, exchange);
  std::memcpy(exchange + codes, record, kPageRows);
}

// The scales of rows whose largest values are given, rounded up so that no code leaves the range: bytes, and
// their values in place of the largest.
void scale_rows(float* largest, uint8_t* bytes, int8_t* exponent) {
  for (int row = 0; row < kPageRows; ++row) largest[row] /= kLargestCode;
  *exponent = scale_exponent(*std::max_element(largest, largest + kPageRows), ScaleRounding::kUp);
  for (int row = 0; row < kPageRows; ++row) {
    bytes[row] = scale_byte(largest[row], *exponent, ScaleRounding::kUp);
    largest[row] = scale_value(bytes[row], *exponent);
  }
}

template <Isa kIsa>
const CodeKernels& kernels() {
  return code_kernels(kIsa).integers;
}

template <Isa kIsa>
struct Verbs {
  static void encode(const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                     std::byte* scratch) {
    if (!fits(shape)) return plain().encode(shape, rows, record, tail, scratch);
    const int64_t values = int64_t{kPageRows} * shape.dim;
    auto* turned = reinterpret_cast<float*>(scratch);
    auto* codes = reinterpret_cast<uint8_t*>(turned + values);
    float scales[kPageRows];
    kernels<kIsa>().find_largest(shape.dim, rows, scales);
    if (*std::max_element(scales, scales + kPageRows) > kLargestValue) {
      for (int64_t i = 0; i < values; ++i) turned[i] = std::clamp(rows[i], -kLargestValue, kLargestValue);
      rotate_rows(kIsa, shape, kPageRows, turned);
    } else {
      rotate_rows(kIsa, shape, kPageRows, rows, turned);
    }
    kernels<kIsa>().find_largest(shape.dim, turned, scales);
    scale_rows(scales, reinterpret_cast<uint8_t*>(record), &tail->exponent[static_cast<int>(shape.side)]);
    kernels<kIsa>().encode_integers(shape.dim, turned, scales, codes);
    pack_codes(order_of(shape), codes, record + kPageRows);
  }
  static void expand(const RowShape& shape, const Record& record, float* rows) {
    if (!fits(shape)) return plain().expand(shape, record, rows);
    kernels<kIsa>().expand(shape, record, rows);
  }
  static void turn(const RowShape& shape, int64_t count, float* rows) {
    rotate_rows(kIsa, shape, count, rows);
  }
  static void finish(const RowShape& shape, int heads, float* acc) {
    rotate_rows_back(kIsa, shape, heads, acc);
  }
  static void decode(const RowShape& shape, const Record& record, float* rows) {
    expand(shape, record, rows);
    finish(shape, record.rows, rows);
  }
  static int64_t prepared_bytes(const RowShape& shape, int heads) {
    if (!fits(shape)) return plain().prepared_bytes(shape, heads);
    return kernels<kIsa>().prepared_bytes(shape, heads) + int64_t{4} * heads * shape.dim;
  }
  static void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
    if (!fits(shape)) return plain().prepare(shape, queries, heads, prepared);
    // Behind what the kernels write there is room for the queries: prepared_bytes() says so.
    auto* turned = reinterpret_cast<float*>(prepared + kernels<kIsa>().prepared_bytes(shape, heads));
    rotate_rows(kIsa, shape, heads, queries, turned);
    kernels<kIsa>().prepare(shape, turned, heads, prepared);
  }
  static void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
                    float* scores) {
    if (!fits(shape)) return plain().score(shape, prepared, heads, record, scores);
    kernels<kIsa>().score(shape, prepared, heads, record, scores);
  }
  static void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record,
                         float* acc) {
    if (!fits(shape)) return plain().accumulate(shape, weights, heads, record, acc);
    kernels<kIsa>().accumulate(shape, weights, heads, record, acc);
  }
};

template <Isa kIsa>
constexpr RowCodec kCodec = {Verbs<kIsa>::encode,  Verbs<kIsa>::decode, Verbs<kIsa>::prepared_bytes,
                             Verbs<kIsa>::prepare, Verbs<kIsa>::score,  Verbs<kIsa>::accumulate,
                             Verbs<kIsa>::finish,  Verbs<kIsa>::turn,   Verbs<kIsa>::expand,
                             export_record,        import_record};

}  // namespace

const RowCodec& aura_int8_codec(Isa isa) {
  if (isa >= Isa::kAvx512) return kCodec<Isa::kAvx512>;
  if (isa == Isa::kAvx2) return kCodec<Isa::kAvx2>;
  return kCodec<Isa::kPortable>;
}

}  // namespace butter::cpu
