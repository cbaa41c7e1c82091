// RowFormat: how sealed rows are stored, and the codecs that write and read them.
//
// A format is one table row here (kernels/row_formats.cc) and one file of the same name in each backend
// folder. Everything else (windows, pages, attention loops, plans) sees records as opaque bytes.
//
// The life of a record: encode() writes it once, when its page is sealed. Attention then works in the
// format's own basis, in the compressed domain:
//
//   prepare(q) once per step and head group  ->  score(q', record) gives 64 scores a head
//   softmax (not the codec's business)       ->  accumulate(weights, record, acc)
//   finish(acc) once, after the last page: back to the model's basis
//
// Prefill reads whole tiles instead: turn() brings queries into the format's basis in float, expand()
// writes a record's rows in that basis, finish() as above.
//
// All functions are pure: no allocation, no state, any thread. Arrays are row-major floats without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cpu_isa.h"
#include "kernels/kv_layout.h"

namespace butter {

// A record, or raw rows, that a codec is to read.
struct Record {
  const std::byte* data = nullptr;
  // Rows to read, from the first. Below 64 only for raw rows: an open page, or the pinned ones.
  int rows = kPageRows;
  const RecordTail* tail = nullptr;  // of the head, for sealed records
};

// Scratch that encode() may use.
constexpr int64_t encode_scratch_bytes(int dim) {
  return (int64_t{64} << 10) + int64_t{9} * kPageRows * dim;
}

struct RowCodec {
  // Encodes the 64 rows of a page, [64][dim], finite, into record, and what belongs to its side of the tail.
  // `scratch`: encode_scratch_bytes(dim), aligned to 64.
  void (*encode)(const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                 std::byte* scratch);
  // Rows [record.rows][dim] in the model's basis: the meaning of the record.
  void (*decode)(const RowShape& shape, const Record& record, float* rows);

  // Bytes of a prepared group of `heads` queries (keys only): at most prepared_bytes_limit().
  int64_t (*prepared_bytes)(const RowShape& shape, int heads);
  // queries [heads][dim], already multiplied by the attention scale.
  void (*prepare)(const RowShape& shape, const float* queries, int heads, std::byte* prepared);
  // scores [heads][64]: q·k for every row of the record, visible or not; those past record.rows are
  // undefined.
  void (*score)(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
                float* scores);
  // acc [heads][dim] += weights [heads][64] · rows. A row whose weights are 0 for all heads is hidden: it may
  // hold anything, NaN too. Weights past record.rows are 0.
  void (*accumulate)(const RowShape& shape, const float* weights, int heads, const Record& record,
                     float* acc);
  // acc [heads][dim], in place: from the format's basis to the model's.
  void (*finish)(const RowShape& shape, int heads, float* acc);

  // rows [count][dim], in place: from the model's basis to the format's (the inverse of finish; orthonormal).
  void (*turn)(const RowShape& shape, int64_t count, float* rows);
  // Rows [record.rows][dim] of the record in the format's basis.
  void (*expand)(const RowShape& shape, const Record& record, float* rows);

  // The device's order of a record's bytes to that of the exchange form (docs/kv-cache-internals.md), and
  // back. Null where they are the same.
  void (*export_record)(const RowShape& shape, const std::byte* record, std::byte* exchange) = nullptr;
  void (*import_record)(const RowShape& shape, const std::byte* exchange, std::byte* record) = nullptr;
};

// Scratch is planned before any scheme is known, so a codec's prepared queries have a common limit.
inline int64_t prepared_bytes_limit(int dim, int heads) {
  return heads * (int64_t{16} * dim + 256);
}

struct RowFormat {
  const char* name;  // as a scheme string writes it
  // False: a sealed record is the raw rows themselves, and sealing a page costs nothing.
  bool seals;
  bool lossy;
  int bits;  // of a code, and channels that share a scale, for the format's RowShapes
  int group;
  // Bytes of a record: 64 rows of one KV head and side.
  int64_t (*record_bytes)(const RowShape& shape);
  // Widths that the format can take; a model with another one is refused at load.
  bool (*takes_dim)(int dim);
  const RowCodec* reference;
  const RowCodec* (*cpu)(Isa isa);
};

// The raw format: the default, and the type of every open page.
const RowFormat& raw_format();

// Every format there is.
const std::vector<const RowFormat*>& row_formats();

// Finds a format by name; null if there is none.
const RowFormat* find_row_format(std::string_view name);

// "raw, ...", for messages.
std::string row_format_names();

// Adds a format under a name of its own for the rest of the process: tests prove the seam with it.
// Call before any engine is made.
void register_row_format(const RowFormat& format);

// Bytes of `rows` raw rows of one KV head and side.
inline int64_t raw_rows_bytes(const RowShape& shape, int64_t rows) {
  return rows * shape.dim * dtype_info(shape.raw).block_bytes;
}

}  // namespace butter
