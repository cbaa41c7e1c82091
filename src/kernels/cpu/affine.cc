// The affine formats on the CPU: records in the order of codes_layout.h, the kernels of codes_inl.h. Widths
// that this order cannot take keep the exchange form, and the reference codec's plain loops.
#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/codes_layout.h"
#include "kernels/cpu/formats.h"
#include "kernels/reference/formats.h"

#include <cstring>

namespace butter::cpu {
namespace {

const RowCodec& plain() {
  return reference::affine_codec();
}
// Groups end where vectors of 16 channels do.
bool fits(const RowShape& shape) {
  return codes_fit(shape.dim) && codes_fit(shape.group);
}
CodeOrder order_of(const RowShape& shape) {
  return {shape.dim, shape.bits, shape.side, false};
}
int64_t plane_bytes(const RowShape& shape) {
  return int64_t{4} * kPageRows * ((shape.dim + shape.group - 1) / shape.group);
}

void import_record(const RowShape& shape, const std::byte* exchange, std::byte* record) {
  const int64_t codes = code_bytes(shape.dim, shape.bits), planes = plane_bytes(shape);
  if (!fits(shape)) {
    std::memcpy(record, exchange, static_cast<size_t>(codes + planes));
    return;
  }
  std::memcpy(record, exchange + codes, static_cast<size_t>(planes));
  import_codes(order_of(shape), exchange, record + planes);
}

void export_record(const RowShape& shape, const std::byte* record, std::byte* exchange) {
  const int64_t codes = code_bytes(shape.dim, shape.bits), planes = plane_bytes(shape);
  if (!fits(shape)) {
    std::memcpy(exchange, record, static_cast<size_t>(codes + planes));
    return;
  }
  export_codes(order_of(shape), record + planes, exchange);
  std::memcpy(exchange + codes, record, static_cast<size_t>(planes));
}

template <Isa kIsa>
const CodeKernels& kernels() {
  return code_kernels(kIsa).affine;
}

template <Isa kIsa>
struct Verbs {
  static void encode(const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                     std::byte* scratch) {
    if (!fits(shape)) return plain().encode(shape, rows, record, tail, scratch);
    auto* codes = reinterpret_cast<uint8_t*>(scratch);
    kernels<kIsa>().encode_affine(shape, rows, codes, record);
    pack_codes(order_of(shape), codes, record + plane_bytes(shape));
  }
  static void expand(const RowShape& shape, const Record& record, float* rows) {
    if (!fits(shape)) return plain().expand(shape, record, rows);
    kernels<kIsa>().expand(shape, record, rows);
  }
  static int64_t prepared_bytes(const RowShape& shape, int heads) {
    return fits(shape) ? kernels<kIsa>().prepared_bytes(shape, heads) : plain().prepared_bytes(shape, heads);
  }
  static void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
    if (!fits(shape)) return plain().prepare(shape, queries, heads, prepared);
    kernels<kIsa>().prepare(shape, queries, heads, prepared);
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

// The format's basis is the model's.
void finish(const RowShape&, int, float*) {}
void turn(const RowShape&, int64_t, float*) {}

template <Isa kIsa>
constexpr RowCodec kCodec = {Verbs<kIsa>::encode,
                             Verbs<kIsa>::expand,
                             Verbs<kIsa>::prepared_bytes,
                             Verbs<kIsa>::prepare,
                             Verbs<kIsa>::score,
                             Verbs<kIsa>::accumulate,
                             finish,
                             turn,
                             Verbs<kIsa>::expand,
                             export_record,
                             import_record};

}  // namespace

const RowCodec* affine_codec(Isa isa) {
  if (isa >= Isa::kAvx512) return &kCodec<Isa::kAvx512>;
  if (isa == Isa::kAvx2) return &kCodec<Isa::kAvx2>;
  return &kCodec<Isa::kPortable>;
}

const CodeKernelTable& code_kernels([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return code_kernels_avx512();
  if (isa == Isa::kAvx2) return code_kernels_avx2();
#endif
  return code_kernels_portable();
}

}  // namespace butter::cpu
