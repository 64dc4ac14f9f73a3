// tex, tld4, suld, sust: "Texture Instructions" and "Surface Instructions" of the PTX manual.
#include "instructions/elementwise.h"
#include "instructions/sampling.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using machine::Image;
using machine::Texture;
using machine::Textures;
using program::Operand;
using ptx::Type;

namespace {

// op[0] is the handle; Code::more has the values' slots, then the coordinates', the layer first. flags:
constexpr std::uint32_t kDimensionsMask = 3; ///< 1 to 3
constexpr std::uint32_t kLayered = 1u << 2;
constexpr std::uint32_t kWhole = 1u << 3; ///< integer coordinates
constexpr int kCountShift = 4;            ///< 3 bits: values
// Of tld4:
constexpr int kChannelShift = 7;
// Of surfaces:
constexpr int kBytesShift = 7; ///< 4 bits: of one value
constexpr int kModeShift = 11;
enum class OutOfRange : std::uint32_t { trap, clamp, zero };

constexpr std::string_view kGeometries[] = {"1d", "2d", "3d", "a1d", "a2d"};

unsigned dimensions_of(const Instruction &in) { return in.flags & kDimensionsMask; }
unsigned value_count(const Instruction &in) { return in.flags >> kCountShift & 7; }

/// The object of each lane's handle; lanes rarely differ.
template <typename Object> class Objects {
public:
  Objects(Warp &warp, const Instruction &in) : handles_(warp.lanes<std::uint64_t>(in.op[0])) {}

  const Object &of(int lane) {
    if (object_ && handles_[lane] == handle_)
      return *object_;
    handle_ = handles_[lane];
    object_ = find(handle_);
    if (!object_)
      throw FaultError(FaultKind::bad_operand,
                       std::to_string(handle_) + " is not the handle of a " + kName +
                           " object that exists (cudaCreate" + kCall + "Object)",
                       lane);
    return *object_;
  }

private:
  static constexpr bool kIsTexture = std::is_same_v<Object, Texture>;
  static constexpr const char *kName = kIsTexture ? "texture" : "surface";
  static constexpr const char *kCall = kIsTexture ? "Texture" : "Surface";
  static std::shared_ptr<const Object> find(std::uint64_t handle) {
    if constexpr (kIsTexture)
      return Textures::instance().find(handle);
    else
      return Textures::instance().find_surface(handle);
  }

  const std::uint64_t *handles_;
  std::uint64_t handle_ = 0;
  std::shared_ptr<const Object> object_;
};

/// An access by a function for another kind of image is undefined on a GPU.
void check_geometry(const Instruction &in, const Image &image, int lane) {
  const bool is_layered = in.flags & kLayered;
  if (image.dimensions == dimensions_of(in) && is_layered == (image.layers != 0))
    return;
  const auto name = [](unsigned dimensions, bool layered) {
    return std::to_string(dimensions) + "D" + (layered ? " layered" : "");
  };
  throw FaultError(FaultKind::bad_operand,
                   "a " + name(dimensions_of(in), is_layered) + " access to a " +
                       name(image.dimensions, image.layers != 0) + " image",
                   lane);
}

struct Slots {
  const std::uint32_t *values, *coordinates;
};

Slots slots(Warp &warp, const Instruction &in) {
  const std::uint32_t *const more = warp.more(in);
  return {more, more + value_count(in)};
}

CheckRead reader(Warp &warp, int lane) {
  return [&warp, lane](std::uint64_t address, std::uint64_t bytes) {
    warp.global_range(address, bytes, false, lane);
  };
}

/// Reads a lane's layer and moves `slot` to the first coordinate.
std::uint64_t layer_of(Warp &warp, const Instruction &in, const std::uint32_t *&slot, int lane) {
  return in.flags & kLayered ? warp.lanes<std::uint32_t>(*slot++)[lane] : 0;
}

Coordinates coordinates_of(Warp &warp, const Instruction &in, const std::uint32_t *slot, int lane) {
  Coordinates result;
  result.layer = layer_of(warp, in, slot, lane);
  for (unsigned d = 0; d < dimensions_of(in); ++d)
    result.at[d] = warp.lanes<float>(slot[d])[lane];
  return result;
}

void write(Warp &warp, const Instruction &in, const Texel &texel, int lane) {
  const std::uint32_t *const values = slots(warp, in).values;
  for (unsigned c = 0; c < value_count(in); ++c)
    warp.lanes<std::uint32_t>(values[c])[lane] = texel[c];
}

void texture_fetch(Warp &warp, const Instruction &in) {
  Objects<Texture> textures(warp, in);
  for_lanes(warp.active(), [&](int lane) {
    const Texture &texture = textures.of(lane);
    check_geometry(in, texture.image, lane);
    const std::uint32_t *slot = slots(warp, in).coordinates;
    if (in.flags & kWhole) {
      const std::uint64_t layer = layer_of(warp, in, slot, lane);
      std::array<std::int64_t, 3> at{};
      for (unsigned d = 0; d < dimensions_of(in); ++d)
        at[d] = warp.lanes<std::int32_t>(slot[d])[lane];
      write(warp, in, fetch(texture, at, layer, reader(warp, lane)), lane);
    } else {
      if (texture.image.is_linear)
        throw FaultError(FaultKind::bad_operand,
                         "a texture of linear memory has whole coordinates only: use tex1Dfetch", lane);
      write(warp, in, sample(texture, coordinates_of(warp, in, slot, lane), reader(warp, lane)), lane);
    }
  });
}

void texture_gather(Warp &warp, const Instruction &in) {
  Objects<Texture> textures(warp, in);
  for_lanes(warp.active(), [&](int lane) {
    const Texture &texture = textures.of(lane);
    check_geometry(in, texture.image, lane);
    const Coordinates at = coordinates_of(warp, in, slots(warp, in).coordinates, lane);
    write(warp, in, gather(texture, at, in.flags >> kChannelShift & 3, reader(warp, lane)), lane);
  });
}

/// The address of a lane's access to a surface; nullopt: outside, where `zero` reads zeros and writes
/// nothing. The first coordinate is in bytes.
std::optional<std::uint64_t> surface_address(Warp &warp, const Instruction &in, const Image &image,
                                             int lane) {
  check_geometry(in, image, lane);
  const std::uint32_t *slot = slots(warp, in).coordinates;
  std::array<std::uint64_t, 3> place{};
  const std::uint64_t layer = layer_of(warp, in, slot, lane);
  const std::uint64_t bytes = std::uint64_t(value_count(in)) * (in.flags >> kBytesShift & 15);
  bool is_inside = !image.layers || layer < image.layers;
  place[2] = image.layers ? std::min(layer, image.layers - 1) : 0;
  for (unsigned d = 0; d < dimensions_of(in); ++d) {
    const std::int64_t at = warp.lanes<std::int32_t>(slot[d])[lane];
    const std::uint64_t size = d == 0 ? image.size[0] * image.texel_bytes() : image.size[d];
    const std::int64_t last = std::int64_t(size) - std::int64_t(d == 0 ? std::min(bytes, size) : 1);
    is_inside = is_inside && at >= 0 && at <= last;
    place[d] = std::uint64_t(std::clamp<std::int64_t>(at, 0, last));
  }
  const auto mode = OutOfRange(in.flags >> kModeShift & 3);
  if (!is_inside && mode == OutOfRange::trap)
    throw FaultError(FaultKind::out_of_bounds,
                     "an access outside a surface of " + std::to_string(image.size[0] * image.texel_bytes()) +
                         " bytes x " + std::to_string(image.size[1]) + " x " +
                         std::to_string(image.layers ? image.layers : image.size[2]) +
                         " (the first coordinate is in bytes)",
                     lane);
  if (!is_inside && mode == OutOfRange::zero)
    return std::nullopt;
  if (place[0] % bytes)
    throw FaultError(FaultKind::misaligned,
                     "byte " + std::to_string(place[0]) + " of a surface's row is not a multiple of " +
                         std::to_string(bytes),
                     lane);
  return image.base + place[2] * image.slice + place[1] * image.pitch + place[0];
}

template <bool IsStore> void surface_access(Warp &warp, const Instruction &in) {
  Objects<Image> surfaces(warp, in);
  const unsigned bytes = in.flags >> kBytesShift & 15;
  const std::uint32_t *const values = slots(warp, in).values;
  for_lanes(warp.active(), [&](int lane) {
    const auto address = surface_address(warp, in, surfaces.of(lane), lane);
    if (address)
      warp.global_range(*address, std::uint64_t(bytes) * value_count(in), IsStore, lane);
    else if (IsStore)
      return;
    for (unsigned c = 0; c < value_count(in); ++c) {
      auto *const memory = reinterpret_cast<std::uint8_t *>(address.value_or(0)) + c * bytes;
      std::uint64_t value = 0;
      if constexpr (IsStore) {
        value = bytes == 8 ? warp.lanes<std::uint64_t>(values[c])[lane]
                           : warp.lanes<std::uint32_t>(values[c])[lane];
        std::memcpy(memory, &value, bytes);
      } else {
        if (address)
          std::memcpy(&value, memory, bytes);
        if (bytes == 8)
          warp.lanes<std::uint64_t>(values[c])[lane] = value;
        else
          warp.lanes<std::uint32_t>(values[c])[lane] = std::uint32_t(value);
      }
    }
  });
}

std::vector<Operand> elements_of(const Operand &operand) {
  return operand.kind == Operand::Kind::vector ? operand.elements : std::vector<Operand>{operand};
}

/// [handle, {coordinates}]: sets op[0] and the geometry's flags, and appends the coordinates' slots.
void bind_place(Binder &binder, const Operand &operand, Type type, std::vector<std::uint32_t> &slots) {
  std::string_view geometry;
  for (const std::string_view name : kGeometries)
    if (binder.has(name))
      geometry = name;
  if (geometry.empty())
    binder.unsupported("only 1d, 2d, 3d, a1d and a2d are emulated: no cubemaps, no multisampling");
  if (operand.kind != Operand::Kind::address || operand.elements.size() != 2 ||
      operand.elements[0].kind != Operand::Kind::reg)
    binder.unsupported("only textures and surfaces by handles, [handle, {coordinates}], without an offset or "
                       "a sampler; texture references do not exist since CUDA 12");
  const bool is_layered = geometry.front() == 'a';
  const unsigned dimensions = unsigned(geometry[is_layered] - '0');
  binder.out.op[0] = binder.source_slot(operand.elements[0], Type::b64);
  binder.out.flags |= dimensions | (is_layered ? kLayered : 0);
  const std::vector<Operand> coordinates = elements_of(operand.elements[1]);
  if (coordinates.size() < dimensions + is_layered)
    binder.unsupported("the number of coordinates differs from the number of dimensions");
  for (unsigned i = 0; i < dimensions + is_layered; ++i)
    slots.push_back(binder.source_slot(coordinates[i], is_layered && i == 0 ? Type::u32 : type));
}

std::vector<std::uint32_t> bind_texture_values(Binder &binder) {
  if (ptx::type_bytes(binder.type(0)) != 4 || binder.type(0) == Type::f16x2)
    binder.unsupported("only values of 32 bits are emulated");
  std::vector<std::uint32_t> slots;
  for (const Operand &value : elements_of(binder.operand(0)))
    slots.push_back(binder.destination_slot(value, binder.type(0)));
  if (slots.size() != 4)
    binder.unsupported("only four values are emulated");
  binder.out.flags = 4u << kCountShift;
  return slots;
}

/// Without mipmaps, the level and the gradients have no effect.
bool bind_tex(Binder &binder) {
  only(binder, {"1d", "2d", "3d", "a1d", "a2d", "cube", "acube", "level", "grad", "v4"});
  if (binder.operand_count() > (binder.has("grad") ? 4u : binder.has("level") ? 3u : 2u))
    binder.unsupported("offsets and depth comparisons are not emulated");
  std::vector<std::uint32_t> slots = bind_texture_values(binder);
  const bool is_whole = binder.type(1) == Type::s32;
  bind_place(binder, binder.operand(1), is_whole ? Type::s32 : Type::f32, slots);
  binder.out.flags |= is_whole ? kWhole : 0;
  binder.set_more(slots);
  binder.out.execute = texture_fetch;
  return true;
}

bool bind_tld4(Binder &binder) {
  constexpr std::string_view kChannels[] = {"r", "g", "b", "a"};
  only(binder, {"2d", "v4", "r", "g", "b", "a"});
  expect_operands(binder, 2);
  std::vector<std::uint32_t> slots = bind_texture_values(binder);
  bind_place(binder, binder.operand(1), Type::f32, slots);
  for (std::uint32_t channel = 0; channel < 4; ++channel)
    if (binder.has(kChannels[channel]))
      binder.out.flags |= channel << kChannelShift;
  binder.set_more(slots);
  binder.out.execute = texture_gather;
  return true;
}

template <bool IsStore> bool bind_surface(Binder &binder) {
  only(binder, {"b", "1d", "2d", "3d", "a1d", "a2d", "v2", "v4", "trap", "clamp", "zero", "cube", "acube"});
  if (!binder.has("b"))
    binder.unsupported("formatted accesses (.p) are not emulated");
  expect_operands(binder, 2);
  const Type type = binder.type(0);
  std::vector<std::uint32_t> slots;
  for (const Operand &value : elements_of(binder.operand(IsStore ? 1 : 0)))
    slots.push_back(IsStore ? binder.source_slot(value, type) : binder.destination_slot(value, type));
  const auto mode = binder.has("clamp")  ? OutOfRange::clamp
                    : binder.has("zero") ? OutOfRange::zero
                                         : OutOfRange::trap;
  binder.out.flags = std::uint32_t(slots.size()) << kCountShift | ptx::type_bytes(type) << kBytesShift |
                     std::uint32_t(mode) << kModeShift;
  bind_place(binder, binder.operand(IsStore ? 0 : 1), Type::s32, slots);
  binder.set_more(slots);
  binder.out.execute = surface_access<IsStore>;
  return true;
}

constexpr TableEntry kTable[] = {
    {"tex", bind_tex},
    {"tld4", bind_tld4},
    {"suld", bind_surface<false>},
    {"sust", bind_surface<true>},
};

} // namespace

std::span<const TableEntry> texture_table() { return kTable; }

} // namespace ladder::instructions
