// tcgen05.mma and tcgen05.cp.
#include "instructions/tensor_product.h"

#include "instructions/elementwise.h"
#include "instructions/lanes.h"
#include "machine/block.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ladder::instructions {

using machine::Block;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::TensorMemory;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

[[noreturn]] void reject(const std::string &message) { throw FaultError(FaultKind::bad_operand, message); }
std::string text(std::uint64_t value) { return std::to_string(value); }

enum class Kind : std::uint32_t { f16, tf32, f8f6f4, i8 };
constexpr std::string_view kKinds[] = {"kind::f16", "kind::tf32", "kind::f8f6f4", "kind::i8"};

// Flags of tcgen05.mma. op[0] D's address, op[1] A's or its descriptor, op[2] B's descriptor, op[3] the
// instruction descriptor, op[4] enable-input-d; imm the offsets of D's (low half) and A's address. more: the
// slots of disable-output-lane.
constexpr std::uint32_t kKindBits = 2;
constexpr std::uint32_t kPair = 1u << 2;
constexpr std::uint32_t kAInTensor = 1u << 3;
constexpr std::uint32_t kNegated = 1u << 4; ///< enable-input-d
constexpr std::uint32_t kHasMask = 1u << 5;
constexpr std::uint32_t kScaleShift = 8;

// --- the instruction descriptor

ElementFormat element_format(Kind kind, std::uint32_t code, const char *operand) {
  const auto one_of = [&](std::initializer_list<int> codes, std::initializer_list<ElementFormat> formats) {
    const auto found = std::ranges::find(codes, int(code));
    if (found == codes.end())
      reject("the instruction descriptor gives " + std::string(operand) + " the type " + text(code) +
             ", which ." + std::string(kKinds[std::size_t(kind)]) + " does not have");
    return formats.begin()[found - codes.begin()];
  };
  switch (kind) {
  case Kind::f16:
    return one_of({0, 1}, {ElementFormat::f16, ElementFormat::bf16});
  case Kind::tf32:
    return one_of({2}, {ElementFormat::tf32});
  case Kind::i8:
    return one_of({0, 1}, {ElementFormat::u8, ElementFormat::s8});
  case Kind::f8f6f4:
    break;
  }
  return one_of({0, 1, 3, 4, 5}, {ElementFormat::e4m3, ElementFormat::e5m2, ElementFormat::e2m3,
                                  ElementFormat::e3m2, ElementFormat::e2m1});
}

ProductForm decode(std::uint32_t bits, Kind kind, std::uint32_t blocks) {
  const auto field = [&](int first, int count) { return bits >> first & ((1u << count) - 1); };
  ProductForm form;
  if (field(2, 1))
    reject("the instruction descriptor has the sparse bit (2), and the instruction is not tcgen05.mma.sp");
  form.has_integers = kind == Kind::i8;
  form.saturates = field(3, 1);
  if (form.saturates && !form.has_integers)
    reject("the instruction descriptor has the saturate bit (3), which only .kind::i8 has");
  form.a = element_format(kind, field(7, 3), "A");
  form.b = element_format(kind, field(10, 3), "B");
  if (kind == Kind::f16 && form.a != form.b)
    reject("A is " + std::string(format_name(form.a)) + " and B is " + std::string(format_name(form.b)) +
           "; .kind::f16 needs the same type");
  const std::uint32_t result = field(4, 2);
  form.has_f16_result = result == 0;
  const bool may_be_f16 = kind == Kind::f8f6f4 || (kind == Kind::f16 && form.a == ElementFormat::f16);
  if (form.has_integers ? result != 2 : result != 1 && !(result == 0 && may_be_f16))
    reject("the instruction descriptor gives D the type " + text(result) +
           ", which these operands do not have " + "(0 is f16, 1 f32, 2 s32)");
  form.negates_a = field(13, 1);
  form.negates_b = field(14, 1);
  if (form.has_integers && (form.negates_a || form.negates_b))
    reject("the instruction descriptor negates an operand (bits 13 and 14), which .kind::i8 cannot");
  form.a_is_mn_major = field(15, 1);
  form.b_is_mn_major = field(16, 1);
  form.n = 8 * field(17, 6);
  form.m = 16 * field(24, 5);
  form.k = 256 / std::max(8u, format_bits(form.a));
  const std::uint32_t step = blocks == 2 ? 16 : 8;
  const bool has_valid_n = form.n >= step && form.n <= 256 && form.n % step == 0 &&
                           !(form.has_integers && form.n > 32 && form.n % 16);
  if ((form.m != 64 * blocks && form.m != 128 * blocks) || !has_valid_n)
    reject("the instruction descriptor has M = " + text(form.m) + " (bits 24 to 28) and N = " + text(form.n) +
           " (bits 17 to 22); with .cta_group::" + text(blocks) + " M is " + text(64 * blocks) + " or " +
           text(128 * blocks) + ", and N a multiple of " + text(step) + " up to 256");
  return form;
}

// --- matrix descriptors

constexpr std::uint32_t kAtomsOf32 = 1; ///< the mode of bits 61 to 63: 128B swizzle of 32-byte atoms

MatrixDescriptor decode_matrix(std::uint64_t bits) {
  const auto mode = std::uint32_t(bits >> 61);
  if ((bits >> 46 & 7) != 1)
    reject("bits 46 to 48 of the matrix descriptor are " + text(bits >> 46 & 7) +
           "; they must be 1 (binary 001)");
  if (mode == 3 || mode == 5 || mode == 7)
    reject("the matrix descriptor has the swizzle mode " + text(mode) +
           " (bits 61 to 63), which does not exist");
  if (bits >> 52 & 1)
    reject("the matrix descriptor has an absolute leading offset (bit 52), which only K = 96 on sm_103a may");
  MatrixDescriptor at = MatrixDescriptor::decode(bits);
  constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::b128, Swizzle::b128, Swizzle::none,
                                Swizzle::b64,  Swizzle::none, Swizzle::b32};
  at.swizzle = kModes[mode];
  return at;
}

// --- operands

/// Element i of a chunk of 16 bytes.
std::uint32_t element(const std::uint8_t *chunk, std::uint32_t i, unsigned bits) {
  const std::uint32_t first = i * bits;
  std::uint64_t window = 0;
  std::memcpy(&window, chunk + first / 8, std::min<std::size_t>(8, 16 - first / 8));
  return std::uint32_t(window >> first % 8 & ((std::uint64_t(1) << bits) - 1));
}

/// The bits of an operand that `blocks` hold in equal parts, [line][k].
std::vector<std::uint32_t> read_shared(const std::vector<Block *> &blocks, const TensorOperand &operand,
                                       std::uint32_t lines, std::uint32_t k, ElementFormat format) {
  std::vector<std::uint32_t> bits(std::size_t(lines) * k);
  const std::uint32_t part = lines / std::uint32_t(blocks.size());
  const unsigned width = format_bits(format);
  for (std::size_t b = 0; b < blocks.size(); ++b)
    operand.for_chunks(part, k, [&](std::uint32_t line, std::uint32_t first, std::uint32_t offset) {
      std::uint32_t *const to = bits.data() + (b * part + line) * k + first;
      const std::uint8_t *const chunk = blocks[b]->shared_memory() + offset;
      const std::uint32_t along_lines =
          operand.is_mn_major() ? std::min(operand.per_chunk(), part - line) : 1;
      if (operand.is_mn_major())
        for (std::uint32_t i = 0; i < along_lines; ++i)
          to[i * k] = element(chunk, i, width);
      else
        for (std::uint32_t i = 0; i < operand.per_chunk(); ++i)
          to[i] = element(chunk, i, width);
    });
  return bits;
}

/// In tensor memory each element of fewer than 8 bits has a byte: those of e2m1 are bits 2 to 5.
std::vector<std::uint32_t> read_a_tensor(const TensorProduct &product) {
  const ProductForm &form = product.form;
  const unsigned width = format_bits(form.a), container = std::max(8u, width), per_column = 32 / container;
  const unsigned low = form.a == ElementFormat::e2m1 ? 2 : 0;
  std::vector<std::uint32_t> bits(std::size_t(form.m) * form.k);
  const std::uint32_t part = product.rows_per_block();
  for (std::uint32_t m = 0; m < form.m; ++m) {
    TensorMemory &memory = product.group[m / part]->tensor_core().memory();
    const std::uint32_t *const row = memory.lane(product.lane(m % part)) + tensor_column(product.a_tensor);
    for (std::uint32_t k = 0; k < form.k; ++k)
      bits[m * form.k + k] =
          std::uint32_t(std::uint64_t(row[k / per_column]) >> (k % per_column * container + low) &
                        ((std::uint64_t(1) << width) - 1));
  }
  return bits;
}

// --- the product

/// Columns of D that are side by side in a lane.
struct Run {
  std::uint32_t lane, begin, count; ///< columns of D
};

std::vector<Run> runs_of(const TensorProduct &product, std::uint32_t m) {
  const ProductForm &form = product.form;
  const std::uint32_t lane = product.lane(m % product.rows_per_block()), width = product.d_columns();
  std::vector<Run> runs;
  for (std::uint32_t begin = 0; begin < form.n; begin += width)
    runs.push_back({lane + (begin ? 64 : 0), begin, width});
  return runs;
}

void carry_out(const TensorProduct &product) {
  const ProductForm &form = product.form;
  const std::vector<std::uint32_t> a_bits =
      product.a_in_tensor ? read_a_tensor(product)
                          : read_shared(product.group, TensorOperand(product.a, form.a_is_mn_major, form.a),
                                        form.m, form.k, form.a);
  const ElementMatrix a(a_bits, form.m, form.k, form.a, form.negates_a);
  const ElementMatrix b(read_shared(product.group, TensorOperand(product.b, form.b_is_mn_major, form.b),
                                    form.n, form.k, form.b),
                        form.n, form.k, form.b, form.negates_b);
  const WindowedProduct windowed(a, b);
  const std::uint32_t part = product.rows_per_block(), first = tensor_column(product.d);
  std::vector<std::uint32_t> c(form.n), d(form.n);
  for (std::uint32_t m = 0; m < form.m; ++m) {
    TensorMemory &memory = product.group[m / part]->tensor_core().memory();
    const std::vector<Run> runs = runs_of(product, m);
    for (const Run &run : runs)
      std::copy_n(memory.lane(run.lane) + first, run.count, c.begin() + run.begin);
    if (form.has_f16_result)
      for (std::uint32_t &value : c)
        value &= 0xffff;
    const std::uint32_t *const from = product.accumulates ? c.data() : nullptr;
    if (form.has_integers)
      integer_row(a, b, m, form.saturates, from, d.data());
    else
      windowed.row(m, {from, product.scale, form.has_f16_result, d.data()});
    for (const Run &run : runs) {
      if (product.disabled_lanes[m / part * 4 + run.lane / 32] >> run.lane % 32 & 1)
        continue;
      std::uint32_t *const to = memory.lane(run.lane) + first;
      for (std::uint32_t i = 0; i < run.count; ++i) // f16 leaves the upper half of the column
        to[i] = form.has_f16_result ? (to[i] & 0xffff0000u) | d[run.begin + i] : d[run.begin + i];
    }
  }
}

/// Throws unless the whole operand lies in the shared memory of the block.
void check_places(Block &block, const TensorOperand &operand, std::uint32_t lines, std::uint32_t k,
                  const char *name) {
  const std::uint32_t first = block.shared_first() & machine::kOffsetInBlock,
                      end = block.shared_end() & machine::kOffsetInBlock;
  std::uint32_t lowest = ~0u, highest = 0;
  operand.for_chunks(lines, k, [&](std::uint32_t, std::uint32_t, std::uint32_t offset) {
    lowest = std::min(lowest, offset);
    highest = std::max(highest, offset);
  });
  if (lowest >= first && highest + 16 <= end)
    return;
  const MatrixDescriptor &at = operand.descriptor();
  throw FaultError(FaultKind::out_of_bounds,
                   std::string(name) + " extends beyond the block's shared memory (bytes " + text(first) +
                       " to " + text(end) + "): its descriptor has start " + text(at.start) +
                       ", leading offset " + text(at.leading) + ", stride offset " + text(at.stride))
      .at(lowest < first ? lowest : highest);
}

void issue(Warp &warp, std::function<void()> work, int lane) {
  warp.block().tensor_core().queue(warp.index() * 32 + lane).issue(std::move(work));
}

void multiply(Warp &warp, const Instruction &in) {
  warp.block().tensor_core().require_group(in.flags & kPair ? 2 : 1);
  ++warp.access(in, machine::AccessKind::matrix_operand).unmodelled; // no wavefronts are known
  for_lanes(warp.active(), [&](int lane) {
    issue(warp, [product = tensor_product_of(warp, in, lane)] { carry_out(product); }, lane);
  });
}

// --- cp

// op[0] the address, op[1] the descriptor; flags: the shape and the group.
enum class CopyShape : std::uint32_t { r128x256, r128x128, r64x128_02_13, r64x128_01_23, r32x128, r4x256 };
struct CopyForm {
  std::string_view shape, multicast;
  std::uint32_t rows, chunks;
};
constexpr CopyForm kCopies[] = {
    {"128x256b", "", 128, 2},
    {"128x128b", "", 128, 1},
    {"64x128b", "warpx2::02_13", 64, 1},
    {"64x128b", "warpx2::01_23", 64, 1},
    {"32x128b", "warpx4", 32, 1},
    {"4x256b", "", 4, 2},
};
constexpr std::uint32_t kCopyPair = 1u << 3;

void carry_out(const TensorCopy &copy) {
  const TensorOperand source(copy.source, false, ElementFormat::e4m3);
  for (Block *const block : copy.group)
    for (std::uint32_t row = 0; row < copy.rows; ++row)
      for (std::uint32_t c = 0; c < copy.chunks; ++c)
        for (const std::uint32_t lane : copy.lanes(row))
          std::memcpy(block->tensor_core().memory().lane(lane) + tensor_column(copy.address) + 4 * c,
                      block->shared_memory() + source.chunk(row, c), 16);
}

void copy(Warp &warp, const Instruction &in) {
  warp.block().tensor_core().require_group(in.flags & kCopyPair ? 2 : 1);
  for_lanes(warp.active(), [&](int lane) {
    issue(warp, [copy = tensor_copy_of(warp, in, lane)] { carry_out(copy); }, lane);
  });
}

} // namespace

// --- operands in shared memory

TensorOperand::TensorOperand(std::uint64_t descriptor, bool is_mn_major, ElementFormat format)
    : at_(decode_matrix(descriptor)), places_(at_, is_mn_major), is_mn_major_(is_mn_major),
      has_atoms_of_32_(descriptor >> 61 == kAtomsOf32),
      per_chunk_(16 / std::max(1u, format_bits(format) / 8)) {
  const bool needs_atoms = is_mn_major && format == ElementFormat::tf32;
  if (needs_atoms != has_atoms_of_32_)
    reject(needs_atoms ? "an MN-major operand of tf32 needs the swizzle mode 1 (128B with atoms of 32 bytes)"
                       : "the swizzle mode 1 (128B with atoms of 32 bytes) is for MN-major operands of tf32");
}

std::uint32_t TensorOperand::chunk(std::uint32_t line, std::uint32_t c) const {
  if (!is_mn_major_)
    return places_.chunk(line / 8, line % 8, c);
  if (!has_atoms_of_32_)
    return places_.chunk(c, line % 8, line / 8);
  // Panels of 8 chunks; 4 lines of 128 bytes per atom, whose 32-byte pieces are permuted by the line
  // modulo 4.
  const std::uint32_t plain =
      at_.start + c / 8 * at_.leading + c % 8 * 16 + line / 4 * at_.stride + line % 4 * 128;
  return plain ^ (plain >> 7 & 3) << 5;
}

// --- what an instruction asks for

std::uint32_t TensorProduct::d_columns() const {
  return group.size() == 2 && form.m == 128 ? form.n / 2 : form.n;
}

std::uint32_t TensorProduct::lane(std::uint32_t m) const {
  const bool is_spread =
      group.size() == 1 && form.m == 64; // 16 rows per warp, from lane 0 or 16 of its quarter
  return is_spread ? m / 16 * 32 + m % 16 + tensor_lane(d) % 32 : m;
}

TensorProduct tensor_product_of(Warp &warp, const Instruction &in, int lane) {
  const auto value = [&](std::uint32_t slot) { return warp.lanes<std::uint32_t>(slot)[lane]; };
  Block &block = warp.block();
  TensorProduct product;
  product.group = tensor_group(block, in.flags & kPair);
  const auto blocks = std::uint32_t(product.group.size());
  product.form = decode(value(in.op[3]), Kind(in.flags & ((1u << kKindBits) - 1)), blocks);
  product.d = value(in.op[0]) + std::uint32_t(in.imm);
  product.b = warp.lanes<std::uint64_t>(in.op[2])[lane];
  product.accumulates = bool(warp.predicate(in.op[4]) >> lane & 1) != bool(in.flags & kNegated);
  product.scale = int(in.flags >> kScaleShift);
  for (std::uint32_t i = 0; in.flags & kHasMask && i < 4 * blocks; ++i)
    product.disabled_lanes[i] = value(warp.more(in)[i]);
  const std::uint32_t step = blocks == 1 && product.form.m == 64 ? 16 : 128;
  if (tensor_lane(product.d) % 32 % step || tensor_lane(product.d) >= 32)
    throw FaultError(FaultKind::misaligned,
                     "D starts at lane " + text(tensor_lane(product.d)) +
                         " of tensor memory: with M = " + text(product.form.m) +
                         (step == 16 ? " lanes 0 and 16 are allowed" : " it must be lane 0"),
                     lane);
  const std::uint32_t part_n = product.form.n / blocks;
  check_places(block, TensorOperand(product.b, product.form.b_is_mn_major, product.form.b), part_n,
               product.form.k, "operand B");
  if (in.flags & kAInTensor) {
    product.a_in_tensor = true;
    product.a_tensor = value(in.op[1]) + std::uint32_t(std::uint64_t(in.imm) >> 32);
    if (product.form.a_is_mn_major)
      reject("the instruction descriptor transposes A (bit 15), which is in tensor memory");
    if (blocks == 2 && product.form.m == 128)
      throw FaultError(FaultKind::unsupported, "A in tensor memory of a pair with M = 128 is not modelled");
    if (tensor_lane(product.a_tensor) != tensor_lane(product.d))
      throw FaultError(FaultKind::misaligned,
                       "A starts at lane " + text(tensor_lane(product.a_tensor)) +
                           " of tensor memory and D at lane " + text(tensor_lane(product.d)) +
                           ": they must be the same",
                       lane);
  } else {
    product.a = warp.lanes<std::uint64_t>(in.op[1])[lane];
    check_places(block, TensorOperand(product.a, product.form.a_is_mn_major, product.form.a),
                 product.rows_per_block(), product.form.k, "operand A");
  }
  for (Block *const one : product.group) {
    TensorMemory &memory = one->tensor_core().memory();
    memory.require(tensor_column(product.d), product.d_columns());
    if (product.a_in_tensor)
      memory.require(tensor_column(product.a_tensor), TensorProduct::kAColumns);
  }
  return product;
}

TensorCopy tensor_copy_of(Warp &warp, const Instruction &in, int lane) {
  TensorCopy copy;
  copy.group = tensor_group(warp.block(), in.flags & kCopyPair);
  copy.shape = in.flags & (kCopyPair - 1);
  copy.rows = kCopies[copy.shape].rows;
  copy.chunks = kCopies[copy.shape].chunks;
  copy.address = warp.lanes<std::uint32_t>(in.op[0])[lane] + std::uint32_t(in.imm);
  copy.source = warp.lanes<std::uint64_t>(in.op[1])[lane];
  check_places(warp.block(), TensorOperand(copy.source, false, ElementFormat::e4m3), copy.rows,
               copy.chunks * 16, "the source of the copy");
  for (Block *const one : copy.group)
    one->tensor_core().memory().require(tensor_column(copy.address), copy.columns());
  return copy;
}

std::vector<std::uint32_t> TensorCopy::lanes(std::uint32_t row) const {
  switch (CopyShape(shape)) {
  case CopyShape::r128x256:
  case CopyShape::r128x128:
    return {row};
  case CopyShape::r64x128_02_13:
    return {row, row + 64};
  case CopyShape::r64x128_01_23:
    return row < 32 ? std::vector<std::uint32_t>{row, row + 32}
                    : std::vector<std::uint32_t>{row + 32, row + 64};
  case CopyShape::r32x128:
    return {row, row + 32, row + 64, row + 96};
  case CopyShape::r4x256:
    break;
  }
  return {tensor_lane(address) % 32 + 32 * row};
}

// --- binding

bool bind_tensor_product(Binder &binder) {
  for (const std::string_view word : {"sp", "ws", "ashift", "block_scale"})
    if (binder.has(word))
      binder.unsupported("tcgen05.mma with ." + std::string(word));
  const auto kind = std::ranges::find_if(kKinds, [&](std::string_view name) { return binder.has(name); });
  if (kind == std::end(kKinds))
    binder.unsupported("this kind");
  machine::Instruction &out = binder.out;
  out.flags = std::uint32_t(kind - std::begin(kKinds)) | (is_pair(binder) ? kPair : 0);
  const TensorAddress d = tensor_address(binder, binder.operand(0));
  out.op[0] = d.slot;
  std::uint32_t a_offset = 0;
  if (binder.operand(1).kind == Operand::Kind::address) {
    const TensorAddress a = tensor_address(binder, binder.operand(1));
    out.op[1] = a.slot;
    a_offset = std::uint32_t(a.offset);
    out.flags |= kAInTensor;
  } else {
    out.op[1] = binder.source_slot(1, Type::b64);
  }
  out.imm = std::int64_t(std::uint64_t(a_offset) << 32 | std::uint32_t(d.offset));
  out.op[2] = binder.source_slot(2, Type::b64);
  out.op[3] = binder.source_slot(3, Type::b32);
  std::size_t next = 4;
  if (binder.operand(next).kind == Operand::Kind::vector) {
    const Operand &mask = binder.operand(next++);
    const std::size_t words = is_pair(binder) ? 8 : 4;
    if (mask.elements.size() != words)
      binder.unsupported("disable-output-lane has not " + std::to_string(words) + " words");
    std::vector<std::uint32_t> slots;
    for (const Operand &word : mask.elements)
      slots.push_back(binder.source_slot(word, Type::b32));
    binder.set_more(slots);
    out.flags |= kHasMask;
  }
  const Binder::Predicate enable = binder.predicate(binder.operand(next++));
  out.op[4] = enable.offset;
  out.flags |= enable.negated ? kNegated : 0;
  if (binder.operand_count() > next) {
    const Operand &scale = binder.operand(next);
    if (scale.kind != Operand::Kind::integer || scale.bits > 15)
      binder.unsupported("scale-input-d is not a constant from 0 to 15");
    out.flags |= std::uint32_t(scale.bits) << kScaleShift;
  }
  out.execute = multiply;
  return true;
}

bool bind_tensor_copy(Binder &binder) {
  if (binder.has("b8x16"))
    binder.unsupported("tcgen05.cp that decompresses");
  const auto form = std::ranges::find_if(kCopies, [&](const CopyForm &one) {
    return binder.has(one.shape) && (one.multicast.empty() || binder.has(one.multicast));
  });
  if (form == std::end(kCopies))
    binder.unsupported("this shape");
  const TensorAddress to = tensor_address(binder, binder.operand(0));
  binder.out.op[0] = to.slot;
  binder.out.imm = to.offset;
  binder.out.op[1] = binder.source_slot(1, Type::b64);
  binder.out.flags = std::uint32_t(form - std::begin(kCopies)) | (is_pair(binder) ? kCopyPair : 0);
  binder.out.execute = copy;
  return true;
}

} // namespace ladder::instructions
