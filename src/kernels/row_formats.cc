// The table of row formats. A format is added by a row here and a same-named file in each backend folder.
#include <algorithm>
#include <vector>

#include "kernels/cpu/formats.h"
#include "kernels/reference/formats.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

int64_t raw_record_bytes(const RowShape& shape) {
  return raw_rows_bytes(shape, kPageRows);
}
bool any_dim(int dim) {
  return dim > 0;
}

std::vector<const RowFormat*>& formats() {
  static std::vector<const RowFormat*> table = {&raw_format()};
  return table;
}

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
