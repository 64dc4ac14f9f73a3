// The program's copies and fills, and their effects.
#include "host_program.h"

#include <algorithm>
#include <cstring>

namespace fuzz {

namespace {

constexpr std::size_t kWordsBytes = 256, kTableBytes = 64, kSharedByBothBytes = 32;

/// Does not wrap around, and is exact for all sizes that could fit.
using Wide = long double;

} // namespace

/// A random place for one side of a copy; `buffer` is the program's own memory, `mirror` its required
/// contents.
HostProgram::Place HostProgram::place(Side side, std::vector<unsigned char> &buffer,
                                      std::vector<unsigned char> &mirror) {
  Place place;
  const bool is_block = !blocks_.empty() && !random_.one_in(4) &&
                        (side == Side::device || (is_exact() && !(side == Side::host && random_.one_in(2))));
  if (is_block) {
    Block &block = blocks_[random_.below(blocks_.size())];
    const std::size_t offset = random_.one_in(2) ? 0 : random_.below(block.bytes());
    return {block.pointer + offset, &block, false, block.bytes() - offset, block.contents.data() + offset};
  }
  if (side != Side::device) {
    if (random_.one_in(20))
      return {};
    const std::size_t offset = random_.one_in(2) ? 0 : random_.below(buffer.size() / 2);
    return {reinterpret_cast<char *>(buffer.data()) + offset, nullptr, true, buffer.size() - offset,
            mirror.data() + offset};
  }
  if (random_.one_in(3) && !blocks_.empty()) {
    const Block &block = blocks_[random_.below(blocks_.size())];
    place.pointer = block.pointer + block.bytes();
  } else if (random_.one_in(2) && !freed_.empty() && (rules_.is_alone || rules_.may_break)) {
    place.pointer = static_cast<char *>(freed_[random_.below(freed_.size())]);
  } else if (random_.one_in(2)) {
    place.pointer = static_cast<char *>(random_.wild_pointer());
  }
  return place;
}

bool HostProgram::holds(const Place &place, std::size_t bytes) const {
  return place.pointer && (place.is_buffer || (place.block && bytes <= place.room));
}

bool HostProgram::holds(const Place &place, const Rows &rows, const Box &box) const {
  if (Wide(rows.x) + Wide(box.width) > Wide(rows.pitch))
    return false;
  if (box.depth > 1 && Wide(rows.y) + Wide(box.height) > Wide(rows.rows))
    return false;
  const Wide pitch = Wide(rows.pitch), slice = pitch * Wide(rows.rows);
  const Wide end = (Wide(rows.z) + Wide(box.depth - 1)) * slice +
                   (Wide(rows.y) + Wide(box.height - 1)) * pitch + Wide(rows.x) + Wide(box.width);
  return place.pointer && (place.is_buffer || (place.block && end <= Wide(place.room)));
}

HostProgram::Box HostProgram::box(bool is_3d, bool is_hostile) {
  return {random_.size(64, is_hostile), random_.size(6, is_hostile), is_3d ? random_.size(3, is_hostile) : 1};
}

/// The layout of the rows of `box` at the place. In a buffer they must fit, for which the box may shrink.
HostProgram::Rows HostProgram::rows(const Place &place, Box &box, bool is_3d) {
  Rows rows;
  rows.pitch = box.width + random_.below(40);
  rows.rows = box.height + random_.below(3);
  if (is_3d && random_.one_in(2)) {
    rows.x = random_.below(3);
    rows.y = random_.below(2);
    rows.z = random_.below(2);
  }
  rows.has_slices = is_3d;
  if (place.is_buffer) {
    // At most 68 + 40 bytes per row, 6 + 3 rows per slice, 4 slices.
    if (place.room < 4 * 9 * 108)
      box.width = 0;
    if (random_.one_in(10))
      rows.pitch = box.width / 2;
    return rows;
  }
  if (random_.one_in(6))
    rows.pitch = random_.size(box.width);
  if (is_3d && random_.one_in(6)) {
    rows.rows = random_.size(box.height);
    (random_.one_in(3) ? rows.x : random_.one_in(2) ? rows.y : rows.z) = random_.hostile_size();
  }
  return rows;
}

unsigned char *HostProgram::row(const Place &place, const Rows &rows, std::size_t y, std::size_t z) {
  return place.mirror + (z + rows.z) * rows.pitch * rows.rows + (y + rows.y) * rows.pitch + rows.x;
}

void HostProgram::copy() {
  const auto kind = random_.enumerator<cudaMemcpyKind>(5);
  const auto side = [&](bool is_host) {
    return kind == cudaMemcpyDefault ? Side::either : is_host ? Side::host : Side::device;
  };
  const bool is_kind = int(kind) >= 0 && int(kind) <= 4;
  const Place from = place(side(!is_kind || kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice),
                           source_, source_);
  const Place to = place(side(!is_kind || kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost),
                         sink_, sink_mirror_);
  std::size_t buffers = sink_.size();
  for (const Place *const one : {&from, &to})
    if (one->is_buffer)
      buffers = std::min(buffers, one->room);
  const bool has_buffer = from.is_buffer || to.is_buffer;
  std::size_t bytes = random_.size(std::min(from.room, to.room), !has_buffer);
  if (has_buffer && random_.one_in(6))
    bytes = random_.below(buffers + 1);
  bool is_stream = true;
  cudaError_t code;
  const char *name = "cudaMemcpy";
  bool is_good = is_kind;
  switch (random_.below(4)) {
  case 0: {
    const cudaStream_t on = stream(&is_stream);
    code = cudaMemcpyAsync(to.pointer, from.pointer, bytes, kind, on);
    break;
  }
  case 1:
    if (kind == cudaMemcpyDeviceToDevice) {
      const int device = random_.one_in(4) ? random_.integer() : 0;
      name = "cudaMemcpyPeer";
      is_good = device == 0;
      code = random_.one_in(2) ? cudaMemcpyPeer(to.pointer, 0, from.pointer, device, bytes)
                               : cudaMemcpyPeerAsync(to.pointer, device, from.pointer, 0, bytes, nullptr);
      break;
    }
    [[fallthrough]];
  default:
    code = cudaMemcpy(to.pointer, from.pointer, bytes, kind);
  }
  is_good = is_good && is_stream && (bytes == 0 || (holds(from, bytes) && holds(to, bytes)));
  expect(name, code, is_good);
  if (is_exact() && code == cudaSuccess && bytes)
    std::memmove(to.mirror, from.mirror, bytes);
}

void HostProgram::copy_pitched() {
  const bool is_3d = random_.one_in(2);
  const auto kind = random_.enumerator<cudaMemcpyKind>(5);
  const bool is_kind = int(kind) >= 0 && int(kind) <= 4;
  const auto side = [&](bool is_host) {
    return kind == cudaMemcpyDefault ? Side::either : is_host ? Side::host : Side::device;
  };
  const Place from = place(side(!is_kind || kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice),
                           source_, source_);
  const Place to = place(side(!is_kind || kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost),
                         sink_, sink_mirror_);
  Box what = box(is_3d, !from.is_buffer && !to.is_buffer);
  Rows from_rows = rows(from, what, is_3d), to_rows = rows(to, what, is_3d);
  bool is_stream = true;
  const bool is_async = random_.one_in(3);
  const cudaStream_t on = is_async ? stream(&is_stream) : nullptr;
  cudaError_t code;
  if (is_3d) {
    cudaMemcpy3DParms parameters{};
    parameters.srcPtr = {from.pointer, from_rows.pitch, what.width, from_rows.rows};
    parameters.dstPtr = {to.pointer, to_rows.pitch, what.width, to_rows.rows};
    parameters.srcPos = {from_rows.x, from_rows.y, from_rows.z};
    parameters.dstPos = {to_rows.x, to_rows.y, to_rows.z};
    parameters.extent = {what.width, what.height, what.depth};
    parameters.kind = kind;
    code = is_async ? cudaMemcpy3DAsync(&parameters, on) : cudaMemcpy3D(&parameters);
  } else {
    code = is_async ? cudaMemcpy2DAsync(to.pointer, to_rows.pitch, from.pointer, from_rows.pitch, what.width,
                                        what.height, kind, on)
                    : cudaMemcpy2D(to.pointer, to_rows.pitch, from.pointer, from_rows.pitch, what.width,
                                   what.height, kind);
  }
  const bool is_good =
      is_kind && is_stream && (what.is_empty() || (holds(from, from_rows, what) && holds(to, to_rows, what)));
  expect(is_3d ? "cudaMemcpy3D" : "cudaMemcpy2D", code, is_good);
  if (!is_exact() || code != cudaSuccess || what.is_empty())
    return;
  for (std::size_t z = 0; z < what.depth; ++z)
    for (std::size_t y = 0; y < what.height; ++y)
      std::memmove(row(to, to_rows, y, z), row(from, from_rows, y, z), what.width);
}

void HostProgram::set() {
  const Place to = place(random_.one_in(5) ? Side::either : Side::device, sink_, sink_mirror_);
  const std::size_t bytes = random_.size(to.room);
  const int value = random_.integer();
  bool is_good = true;
  const bool is_async = random_.one_in(3);
  const cudaStream_t on = is_async ? stream(&is_good) : nullptr;
  const cudaError_t code =
      is_async ? cudaMemsetAsync(to.pointer, value, bytes, on) : cudaMemset(to.pointer, value, bytes);
  expect("cudaMemset", code, is_good && (bytes == 0 || (to.block && bytes <= to.room)));
  if (is_exact() && code == cudaSuccess && bytes)
    std::memset(to.mirror, value, bytes);
}

void HostProgram::set_pitched() {
  const bool is_3d = random_.one_in(2);
  const Place to = place(Side::device, sink_, sink_mirror_);
  Box what = box(is_3d, true);
  Rows to_rows = rows(to, what, is_3d);
  to_rows.x = to_rows.y = to_rows.z = 0;
  const int value = random_.integer();
  bool is_stream = true;
  const bool is_async = random_.one_in(3);
  const cudaStream_t on = is_async ? stream(&is_stream) : nullptr;
  cudaError_t code;
  if (is_3d) {
    const cudaPitchedPtr pitched{to.pointer, to_rows.pitch, what.width, to_rows.rows};
    const cudaExtent extent{what.width, what.height, what.depth};
    code = is_async ? cudaMemset3DAsync(pitched, value, extent, on) : cudaMemset3D(pitched, value, extent);
  } else {
    code = is_async ? cudaMemset2DAsync(to.pointer, to_rows.pitch, value, what.width, what.height, on)
                    : cudaMemset2D(to.pointer, to_rows.pitch, value, what.width, what.height);
  }
  expect(is_3d ? "cudaMemset3D" : "cudaMemset2D", code,
         is_stream && (what.is_empty() || holds(to, to_rows, what)));
  if (!is_exact() || code != cudaSuccess || what.is_empty())
    return;
  for (std::size_t z = 0; z < what.depth; ++z)
    for (std::size_t y = 0; y < what.height; ++y)
      std::memset(row(to, to_rows, y, z), value, what.width);
}

// --- variables of the module -------------------------------------------------------------------------------

void HostProgram::copy_symbol() {
  struct Symbol {
    const void *name;
    std::vector<unsigned char> *contents;
  };
  const Symbol symbols[] = {{&device_.words, &words_},
                            {&device_.table, &table_},
                            {&device_.shared_by_both, &shared_by_both_},
                            {&device_.missing_variable, nullptr},
                            {random_.wild_pointer(), nullptr},
                            {nullptr, nullptr}};
  const auto &[name, contents] = symbols[random_.one_in(4) ? random_.below(6) : random_.below(3)];
  std::size_t bytes = 0;
  void *address = nullptr;
  expect("cudaGetSymbolSize", cudaGetSymbolSize(&bytes, name), contents);
  expect("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, name), contents);

  const auto kind = random_.enumerator<cudaMemcpyKind>(5);
  const bool is_to = random_.one_in(2);
  const bool is_device = kind == cudaMemcpyDeviceToDevice;
  const Side side = kind == cudaMemcpyDefault ? Side::either : is_device ? Side::device : Side::host;
  const Place other = is_to ? place(side, source_, source_) : place(side, sink_, sink_mirror_);
  const std::size_t offset = random_.one_in(2) ? 0 : random_.size(bytes);
  const std::size_t room = offset <= bytes ? std::min(bytes - offset, other.room) : other.room;
  const std::size_t count = other.is_buffer
                                ? std::min(random_.size(room, false) + random_.below(2), other.room)
                                : random_.size(room);
  bool is_stream = true;
  const bool is_async = random_.one_in(3);
  const cudaStream_t on = is_async ? stream(&is_stream) : nullptr;
  cudaError_t code;
  if (is_to)
    code = is_async ? cudaMemcpyToSymbolAsync(name, other.pointer, count, offset, kind, on)
                    : cudaMemcpyToSymbol(name, other.pointer, count, offset, kind);
  else
    code = is_async ? cudaMemcpyFromSymbolAsync(other.pointer, name, count, offset, kind, on)
                    : cudaMemcpyFromSymbol(other.pointer, name, count, offset, kind);
  const bool is_kind = is_device || kind == cudaMemcpyDefault ||
                       kind == (is_to ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
  const bool is_inside = contents && offset <= bytes && count <= bytes - offset;
  expect(is_to ? "cudaMemcpyToSymbol" : "cudaMemcpyFromSymbol", code,
         is_kind && is_stream && is_inside && (count == 0 || holds(other, count)));
  if (!is_exact() || code != cudaSuccess || count == 0)
    return;
  if (!rules_.is_alone) { // other threads may have written to it
    if (!is_to && other.is_buffer)
      std::memcpy(other.mirror, other.pointer, count);
    if (!is_to && other.block)
      refresh(*other.block);
    return;
  }
  if (is_to)
    std::memcpy(contents->data() + offset, other.mirror, count);
  else
    std::memcpy(other.mirror, contents->data() + offset, count);
}

void HostProgram::clear_variables() {
  words_.assign(kWordsBytes, 0);
  table_.assign(kTableBytes, 0);
  shared_by_both_.assign(kSharedByBothBytes, 0);
  expect("cudaMemcpyToSymbol",
         cudaMemcpyToSymbol(&device_.words, words_.data(), kWordsBytes, 0, cudaMemcpyHostToDevice), true);
  expect("cudaMemcpyToSymbol",
         cudaMemcpyToSymbol(&device_.table, table_.data(), kTableBytes, 0, cudaMemcpyHostToDevice), true);
  expect("cudaMemcpyToSymbol",
         cudaMemcpyToSymbol(&device_.shared_by_both, shared_by_both_.data(), kSharedByBothBytes, 0,
                            cudaMemcpyHostToDevice),
         true);
}

void HostProgram::verify_variables() {
  const std::pair<const void *, const std::vector<unsigned char> &> all[] = {
      {&device_.words, words_}, {&device_.table, table_}, {&device_.shared_by_both, shared_by_both_}};
  for (const auto &[symbol, contents] : all) {
    std::vector<unsigned char> now(contents.size());
    expect("cudaMemcpyFromSymbol",
           cudaMemcpyFromSymbol(now.data(), symbol, now.size(), 0, cudaMemcpyDeviceToHost), true);
    if (!is_broken_ && now != contents)
      fail("a variable does not hold what was written to it");
  }
}

} // namespace fuzz
