#include "runtime/work/fat_binary.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace ladder::runtime {

namespace {

constexpr const char *kFlags = "-gencode=arch=compute_XX,code=compute_XX -Xfatbin --compress=false";

// As nvcc 13.0 writes them; it publishes no names for the fields.
struct Wrapper {
  std::int32_t magic, version;
  const std::byte *data;
  const void *prelinked;
};
struct ContainerHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t body_bytes;
};
struct EntryHeader {
  std::uint16_t kind, attributes;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t compressed_bytes, options_offset;
  std::uint16_t minor, major; ///< of the PTX or ELF version
  std::uint32_t arch;         ///< 80 for sm_80
  std::uint32_t name_offset, name_bytes;
  std::uint64_t flags;
  std::uint64_t reserved;
  std::uint64_t decompressed_bytes; ///< 0 if the payload is uncompressed
};
static_assert(sizeof(ContainerHeader) == 16 && sizeof(EntryHeader) == 64);

constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};
constexpr std::int32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kContainerMagic = 0xba55ed50;
constexpr std::uint16_t kPtx = 1, kElf = 2;

template <typename T> T read(const std::byte *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The .target of the PTX, "sm_90a"; empty if there is none.
std::string target_of(const std::string &ptx) {
  const std::size_t at = ptx.find(".target");
  if (at == std::string::npos)
    return {};
  const std::size_t begin = ptx.find_first_not_of(" \t", at + 7);
  if (begin == std::string::npos)
    return {};
  return ptx.substr(begin, ptx.find_first_of(" \t\r\n,;", begin) - begin);
}

/// sm_90a code runs only on sm_90; sm_100f code runs on its family, of which no GPU exists here.
bool can_run(const std::string &target, std::uint32_t arch, const machine::VirtualGpu &gpu) {
  const std::uint32_t own = std::uint32_t(gpu.major * 10 + gpu.minor);
  const bool specific = !target.empty() && (target.back() == 'a' || target.back() == 'f');
  return specific ? arch == own : arch <= own;
}

std::string join(const std::set<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : ", ") + word;
  return text;
}

} // namespace

DeviceCode select_code(const std::byte *container, std::size_t size, const machine::VirtualGpu &gpu) {
  if (size < sizeof(ContainerHeader))
    throw FatBinaryError("the fat binary is truncated");
  const auto header = read<ContainerHeader>(container);
  if (header.magic != kContainerMagic)
    throw FatBinaryError("the fat binary has the wrong magic number");
  if (header.header_bytes < sizeof(ContainerHeader) || header.header_bytes > size ||
      header.body_bytes > size - header.header_bytes)
    throw FatBinaryError("the fat binary is truncated");

  const std::byte *at = container + header.header_bytes;
  const std::byte *const end = at + header.body_bytes;
  std::string best;
  std::uint32_t best_arch = 0;
  std::map<std::uint32_t, std::span<const std::byte>> cubins; // by architecture
  std::set<std::string> newer, compressed, binary;
  while (at < end) {
    if (std::size_t(end - at) < sizeof(EntryHeader))
      throw FatBinaryError("an entry of the fat binary is truncated");
    const auto entry = read<EntryHeader>(at);
    const std::size_t left = std::size_t(end - at);
    if (entry.header_bytes < sizeof(EntryHeader) || entry.header_bytes > left ||
        entry.payload_bytes > left - entry.header_bytes)
      throw FatBinaryError("an entry of the fat binary is truncated");
    const char *payload = reinterpret_cast<const char *>(at) + entry.header_bytes;
    const std::span<const std::byte> binary_payload(at + entry.header_bytes, entry.payload_bytes);
    at += entry.header_bytes + entry.payload_bytes;

    const std::string arch = std::to_string(entry.arch);
    if (entry.kind == kElf) {
      binary.insert("sm_" + arch);
      if (entry.decompressed_bytes == 0)
        cubins[entry.arch] = binary_payload;
    } else if (entry.kind == kPtx && entry.decompressed_bytes != 0) {
      compressed.insert("compute_" + arch);
    } else if (entry.kind == kPtx) {
      // The text is zero-padded.
      std::string ptx(payload, strnlen(payload, entry.payload_bytes));
      if (!can_run(target_of(ptx), entry.arch, gpu))
        newer.insert("compute_" + arch);
      else if (best.empty() || entry.arch > best_arch) {
        best = std::move(ptx);
        best_arch = entry.arch;
      }
    }
  }
  if (!best.empty())
    return {std::move(best), cubins[best_arch]};
  const std::string flags = std::string("; compile with ") + kFlags;
  if (!compressed.empty())
    throw FatBinaryError("the PTX for " + join(compressed) + " is compressed" + flags);
  if (!newer.empty())
    throw FatBinaryError("there is PTX for " + join(newer) + " only, which " + std::string(gpu.arch) +
                         " cannot run; compile for it or choose another virtual GPU with LADDER_ARCH");
  if (!binary.empty())
    throw FatBinaryError("there is machine code for " + join(binary) + " only, and no PTX" + flags);
  throw FatBinaryError("the fat binary holds no PTX" + flags);
}

ModuleImage ModuleImage::at(const void *image) {
  const auto *const bytes = static_cast<const std::byte *>(image);
  const char *const text = static_cast<const char *>(image);
  if (std::memcmp(text, kElfMagic, sizeof kElfMagic) == 0)
    return {Kind::machine_code, {}};
  if (read<std::int32_t>(bytes) == kWrapperMagic)
    return at(read<Wrapper>(bytes).data);
  if (read<std::uint32_t>(bytes) == kContainerMagic) {
    const auto header = read<ContainerHeader>(bytes);
    return {Kind::container, {text, header.header_bytes + header.body_bytes}};
  }
  return {Kind::ptx, text};
}

ModuleImage ModuleImage::of(std::string bytes) {
  bytes.push_back(0);
  if (bytes.size() < sizeof(ContainerHeader))
    bytes.resize(sizeof(ContainerHeader));
  const auto first = read<std::uint32_t>(reinterpret_cast<const std::byte *>(bytes.data()));
  if (first == kContainerMagic) // its own sizes may be wrong
    return {Kind::container, std::move(bytes)};
  return at(bytes.data());
}

DeviceCode select_code(const ModuleImage &image, const machine::VirtualGpu &gpu) {
  if (image.kind == ModuleImage::Kind::container)
    return select_code(reinterpret_cast<const std::byte *>(image.bytes.data()), image.bytes.size(), gpu);
  const std::string target = target_of(image.bytes);
  const std::size_t digits = target.find_first_of("0123456789");
  const auto arch =
      digits == std::string::npos ? 0 : std::uint32_t(std::strtoul(&target[digits], nullptr, 10));
  if (!can_run(target, arch, gpu))
    throw FatBinaryError(
        "the PTX is for " + target + ", which " + std::string(gpu.arch) +
        " cannot run; compile it for that, or choose another virtual GPU with --arch or LADDER_ARCH");
  return {image.bytes, {}};
}

DeviceCode select_code(const void *wrapper, const machine::VirtualGpu &gpu) {
  if (!wrapper)
    throw FatBinaryError("there is no fat binary");
  const auto header = read<Wrapper>(static_cast<const std::byte *>(wrapper));
  if (header.magic != kWrapperMagic || !header.data)
    throw FatBinaryError("the fat binary's wrapper has the wrong magic number");
  if (header.version != 1)
    throw FatBinaryError("device code that is linked separately (nvcc -rdc=true) is not supported");
  const auto container = read<ContainerHeader>(header.data);
  if (container.magic != kContainerMagic)
    throw FatBinaryError("the fat binary has the wrong magic number");
  // Only the container states its size; the wrapper has none.
  if (container.body_bytes > SIZE_MAX - container.header_bytes)
    throw FatBinaryError("the fat binary is truncated");
  return select_code(header.data, container.header_bytes + container.body_bytes, gpu);
}

} // namespace ladder::runtime
