#include "runtime/observe/machine_code.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

namespace ladder::runtime {

namespace {

using instructions::MachineAccess;
using instructions::MachineAccesses;
using Bytes = std::span<const std::byte>;

/// Reads values in sequence; `failed` once the input ran out.
class Reader {
public:
  explicit Reader(Bytes bytes) : left_(bytes) {}
  bool failed() const { return failed_; }
  bool at_end() const { return failed_ || left_.empty(); }
  Bytes take(std::uint64_t size) {
    if (size > left_.size()) {
      failed_ = true;
      left_ = {};
      return {};
    }
    const Bytes taken = left_.first(std::size_t(size));
    left_ = left_.subspan(std::size_t(size));
    return taken;
  }
  template <typename T> T read() {
    T value{};
    if (const Bytes from = take(sizeof value); !from.empty())
      std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = read<std::uint8_t>();
      value |= std::uint64_t(byte & 127) << shift;
      if (!(byte & 128))
        return value;
    }
    failed_ = true;
    return 0;
  }
  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64;) {
      const auto byte = read<std::uint8_t>();
      value |= std::uint64_t(byte & 127) << shift;
      shift += 7;
      if (byte & 128)
        continue;
      if (byte & 64 && shift < 64)
        value |= ~std::uint64_t(0) << shift;
      return std::int64_t(value);
    }
    failed_ = true;
    return 0;
  }

private:
  Bytes left_;
  bool failed_ = false;
};

Bytes part(Bytes all, std::uint64_t offset, std::uint64_t size) {
  return offset <= all.size() && size <= all.size() - offset
             ? all.subspan(std::size_t(offset), std::size_t(size))
             : Bytes();
}

template <typename T> T read_at(Bytes all, std::uint64_t offset) {
  return Reader(part(all, offset, sizeof(T))).read<T>();
}

std::string_view text_at(Bytes table, std::uint64_t offset) {
  if (offset >= table.size())
    return {};
  const auto *const begin = reinterpret_cast<const char *>(table.data()) + offset;
  return {begin, strnlen(begin, table.size() - std::size_t(offset))};
}

// --- ELF, 64 bits, little endian ---------------------------------------------------------------------------

struct SectionHeader {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, size;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_bytes;
};
struct Symbol {
  std::uint32_t name;
  std::uint8_t info, other;
  std::uint16_t section;
  std::uint64_t value, size;
};
struct Relocation {
  std::uint64_t offset, info;
  std::int64_t addend;
};
static_assert(sizeof(SectionHeader) == 64 && sizeof(Symbol) == 24 && sizeof(Relocation) == 24);

class Elf {
public:
  explicit Elf(Bytes bytes) : bytes_(bytes) {
    constexpr std::string_view kMagic = "\177ELF\2\1";
    if (bytes.size() < 64 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
      return;
    const auto table = read_at<std::uint64_t>(bytes, 0x28);
    const auto count = read_at<std::uint16_t>(bytes, 0x3c), names = read_at<std::uint16_t>(bytes, 0x3e);
    for (std::uint64_t i = 0; i < count; ++i)
      headers_.push_back(read_at<SectionHeader>(bytes, table + i * sizeof(SectionHeader)));
    if (names < headers_.size())
      names_ = contents(names);
  }
  std::size_t sections() const { return headers_.size(); }
  Bytes contents(std::size_t section) const {
    constexpr std::uint32_t kNoBits = 8;
    const SectionHeader &header = headers_[section];
    return header.type == kNoBits ? Bytes() : part(bytes_, header.offset, header.size);
  }
  std::string_view name(std::size_t section) const { return text_at(names_, headers_[section].name); }
  std::optional<std::size_t> find(std::string_view wanted) const {
    for (std::size_t i = 0; i < headers_.size(); ++i)
      if (name(i) == wanted)
        return i;
    return std::nullopt;
  }

private:
  Bytes bytes_, names_;
  std::vector<SectionHeader> headers_;
};

// --- DWARF: which PTX line an instruction is for -----------------------------------------------------------

/// A row of the line table, valid from this offset in a section's code.
struct LineRow {
  std::size_t section;
  std::uint64_t offset;
  int line;
};

/// Runs the line programs of .nv_debug_line_sass (DWARF 2, section 6.2). `section_at` maps a byte position of
/// the programs to the code section that the address there is relocated to.
template <typename Emit>
void run_line_programs(Bytes programs, const std::map<std::uint64_t, std::size_t> &section_at, Emit emit) {
  for (std::uint64_t at = 0; at + 4 <= programs.size();) {
    const auto unit_bytes = read_at<std::uint32_t>(programs, at);
    const Bytes unit = part(programs, at + 4, unit_bytes);
    Reader header(unit);
    header.read<std::uint16_t>(); // version
    const auto header_bytes = header.read<std::uint32_t>();
    const auto minimum = header.read<std::uint8_t>();
    header.read<std::uint8_t>(); // is_stmt
    const auto line_base = header.read<std::int8_t>();
    const auto line_range = header.read<std::uint8_t>(), opcode_base = header.read<std::uint8_t>();
    const Bytes lengths = header.take(opcode_base ? std::size_t(opcode_base) - 1 : 0);
    if (header.failed() || line_range == 0)
      return;
    const std::uint64_t begin = 6 + std::uint64_t(header_bytes);
    const Bytes code = begin <= unit.size() ? unit.subspan(std::size_t(begin)) : Bytes();
    Reader reader(code);
    std::size_t section = 0;
    std::uint64_t offset = 0;
    std::int64_t line = 1;
    const auto row = [&] { emit(LineRow{section, offset, int(line)}); };
    while (!reader.at_end()) {
      const auto opcode = reader.read<std::uint8_t>();
      if (opcode >= opcode_base) {
        const int step = opcode - opcode_base;
        offset += std::uint64_t(step / line_range) * minimum;
        line += line_base + step % line_range;
        row();
        continue;
      }
      switch (opcode) {
      case 0: { // extended
        const std::uint64_t size = reader.uleb();
        const Bytes body = reader.take(size);
        if (body.empty())
          return;
        const auto what = std::uint8_t(body[0]);
        if (what == 1) { // end of sequence
          line = 1;
          offset = 0;
        } else if (what == 2) { // set the address
          offset = read_at<std::uint64_t>(body, 1);
          const auto place = std::uint64_t(body.data() + 1 - programs.data());
          const auto found = section_at.find(place);
          section = found == section_at.end() ? 0 : found->second;
        }
        break;
      }
      case 1:
        row();
        break;
      case 2:
        offset += reader.uleb() * minimum;
        break;
      case 3:
        line += reader.sleb();
        break;
      case 8:
        offset += std::uint64_t((255 - opcode_base) / line_range) * minimum;
        break;
      case 9:
        offset += reader.read<std::uint16_t>();
        break;
      default: // not needed
        for (auto left = opcode - 1u < lengths.size() ? std::uint8_t(lengths[opcode - 1u]) : 0; left > 0;
             --left)
          reader.uleb();
      }
    }
    at += 4 + std::uint64_t(unit_bytes);
  }
}

// --- instructions of 128 bits, since Volta -----------------------------------------------------------------

constexpr std::uint64_t kInstructionBytes = 16;

std::optional<MachineAccess> decode(Bytes code, std::uint64_t offset) {
  const auto low = read_at<std::uint64_t>(code, offset), high = read_at<std::uint64_t>(code, offset + 8);
  constexpr unsigned kSizes[] = {1, 1, 2, 2, 4, 8, 16, 0};
  const unsigned bytes = kSizes[high >> 9 & 7];
  switch (low & 0xfff) {
  case 0x381:
  case 0x981:
    return MachineAccess{MachineAccess::Kind::global_load, bytes};
  case 0x984:
    return MachineAccess{MachineAccess::Kind::load, bytes};
  case 0x388:
  case 0x988:
    return MachineAccess{MachineAccess::Kind::store, bytes};
  case 0x38a: // generic ATOM costs the same as ATOMS in shared memory
  case 0x98a:
  case 0x38c: // ATOMS
  case 0x98c:
    return MachineAccess{MachineAccess::Kind::atomic, 4};
  case 0xf8c:
    return MachineAccess{MachineAccess::Kind::increment, 4};
  default:
    return std::nullopt;
  }
}

/// Calls visit(section, offset, line, code) for the instructions in the cubin's code for which a PTX line is
/// known.
template <typename Visit> void visit_instructions(const Elf &elf, Visit visit) {
  const auto lines = elf.find(".nv_debug_line_sass"), relocations = elf.find(".rela.nv_debug_line_sass"),
             symbols = elf.find(".symtab");
  if (!lines || !relocations || !symbols)
    return;
  std::map<std::uint64_t, std::size_t> section_at;
  for (Reader reader(elf.contents(*relocations)); !reader.at_end();) {
    const auto relocation = reader.read<Relocation>();
    if (reader.failed())
      break;
    const auto symbol = read_at<Symbol>(elf.contents(*symbols), (relocation.info >> 32) * sizeof(Symbol));
    section_at[relocation.offset] = symbol.section;
  }
  // A row is valid up to the next row of its section.
  std::map<std::size_t, std::map<std::uint64_t, int>> rows;
  run_line_programs(elf.contents(*lines), section_at,
                    [&](const LineRow &row) { rows[row.section][row.offset] = row.line; });
  for (const auto &[section, by_offset] : rows) {
    if (section >= elf.sections() || !elf.name(section).starts_with(".text"))
      continue;
    const Bytes code = elf.contents(section);
    for (std::uint64_t offset = 0; offset + kInstructionBytes <= code.size(); offset += kInstructionBytes)
      if (const auto above = by_offset.upper_bound(offset); above != by_offset.begin())
        visit(section, offset, std::prev(above)->second, code);
  }
}

/// The registers per thread of the function with this symbol, from .nv.info; 0 if it has none.
unsigned registers_of(const Elf &elf, std::string_view kernel) {
  constexpr std::uint8_t kSizedValue = 4, kRegisterCount = 0x2f;
  const auto info = elf.find(".nv.info"), symbols = elf.find(".symtab"), names = elf.find(".strtab");
  if (!info || !symbols || !names)
    return 0;
  for (Reader reader(elf.contents(*info)); !reader.at_end();) {
    const auto format = reader.read<std::uint8_t>(), attribute = reader.read<std::uint8_t>();
    const auto size = reader.read<std::uint16_t>();
    if (format != kSizedValue)
      continue; // the value is in `size`
    const Bytes value = reader.take(size);
    if (attribute != kRegisterCount)
      continue;
    const auto symbol =
        read_at<Symbol>(elf.contents(*symbols), read_at<std::uint32_t>(value, 0) * sizeof(Symbol));
    if (text_at(elf.contents(*names), symbol.name) == kernel)
      return read_at<std::uint32_t>(value, 4);
  }
  return 0;
}

} // namespace

MachineAccesses read_machine_accesses(Bytes cubin) {
  MachineAccesses accesses;
  visit_instructions(Elf(cubin), [&](std::size_t, std::uint64_t offset, int line, Bytes code) {
    if (const auto access = decode(code, offset))
      accesses[line].push_back(*access);
  });
  return accesses;
}

timing::MachineKernel read_machine_kernel(Bytes cubin, std::string_view kernel) {
  constexpr int kStallShift = 41;
  timing::MachineKernel result;
  const Elf elf(cubin);
  result.registers = registers_of(elf, kernel);
  const std::string section_name = ".text." + std::string(kernel);
  visit_instructions(elf, [&](std::size_t section, std::uint64_t offset, int line, Bytes code) {
    if (elf.name(section) != section_name)
      return;
    const auto low = read_at<std::uint64_t>(code, offset), high = read_at<std::uint64_t>(code, offset + 8);
    result.instructions.push_back({.place = std::uint32_t(offset / kInstructionBytes),
                                   .ptx_line = line,
                                   .pipe = timing::pipe_of(unsigned(low & 0xfff)),
                                   .stall = std::uint8_t(high >> kStallShift & 15)});
  });
  return result;
}

} // namespace ladder::runtime
