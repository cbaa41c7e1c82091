// The table of row formats. A format is added by a row here and a same-named file in each backend folder.
#include <algorithm>
#include <vector>

#include "kernels/cpu/aura_int8.h"
#include "kernels/cpu/formats.h"
#include "kernels/reference/formats.h"
#include "kernels/rotation.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

int64_t raw_record_bytes(const RowShape& shape) {
  return raw_rows_bytes(shape, kPageRows);
}
bool any_dim(int dim) {
  return dim > 0;
}

// Codes, then a scale and a bias in 16 bits for each row and group.
int64_t affine_record_bytes(const RowShape& shape) {
  const int64_t groups = (shape.dim + shape.group - 1) / shape.group;
  return kPageRows * (int64_t{shape.dim} * shape.bits / 8 + 4 * groups);
}
bool affine_takes(int dim) {
  return dim > 0 && dim % 8 == 0;
}

// Codes, then a scale of 8 bits for each row.
int64_t aura_record_bytes(const RowShape& shape) {
  return kPageRows * ((int64_t{shape.dim} * shape.bits + 7) / 8 + 1);
}

RowFormat affine(const char* name, int bits, int group) {
  return {name,
          true,
          true,
          bits,
          group,
          affine_record_bytes,
          affine_takes,
          &reference::affine_codec(),
          cpu::affine_codec};
}

const RowCodec* aura_int8(Isa isa) {
  return &cpu::aura_int8_codec(isa);
}

RowFormat aura(const char* name, int bits) {
  return {name,
          true,
          true,
          bits,
          0,
          aura_record_bytes,
          rotation_takes,
          &reference::aura_codec(),
          bits == 8 ? aura_int8 : cpu::aura_codec};
}

std::vector<const RowFormat*>& formats() {
  static const RowFormat compressed[] = {affine("affine8", 8, 64),
                                         affine("affine8g16", 8, 16),
                                         affine("affine8g32", 8, 32),
                                         affine("affine8g128", 8, 128),
                                         affine("affine6", 6, 64),
                                         affine("affine6g16", 6, 16),
                                         affine("affine6g32", 6, 32),
                                         affine("affine6g128", 6, 128),
                                         affine("affine4", 4, 32),
                                         affine("affine4g16", 4, 16),
                                         affine("affine4g64", 4, 64),
                                         affine("affine4g128", 4, 128),
                                         aura("aura8", 8),
                                         aura("aura4", 4),
                                         aura("aura3", 3),
                                         aura("aura2", 2)};
  static std::vector<const RowFormat*> table = [] {
    std::vector<const RowFormat*> rows = {&raw_format()};
    for (const RowFormat& format : compressed) rows.push_back(&format);
    return rows;
  }();
  return table;
}

// Other names of formats: the recommended one of a kind, and groups that are the default.
struct Alias {
  const char* name;
  const char* format;
};
constexpr Alias kAliases[] = {{"affine", "affine8"},
                              {"aura", "aura4"},
                              {"affine8g64", "affine8"},
                              {"affine6g64", "affine6"},
                              {"affine4g32", "affine4"}};

}  // namespace

const RowFormat& raw_format() {
  static const RowFormat format = {
      "raw", false, false, 16, 0, raw_record_bytes, any_dim, &reference::raw_codec(), cpu::raw_codec};
  return format;
}

const std::vector<const RowFormat*>& row_formats() {
  return formats();
}

const RowFormat* find_row_format(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (name == alias.name) name = alias.format;
  }
  const auto& table = formats();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const RowFormat* f) { return name == f->name; });
  return found == table.end() ? nullptr : *found;
}

std::string row_format_names() {
  std::string names;
  for (const RowFormat* format : formats()) names += (names.empty() ? "" : ", ") + std::string(format->name);
  return names;
}

void register_row_format(const RowFormat& format) {
  if (find_row_format(format.name) == nullptr) formats().push_back(&format);
}

}  // namespace butter
