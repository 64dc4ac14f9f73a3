// Windows of the generic address space. Global addresses are plain host pointers; the other windows use
// addresses that no user-space pointer can have, so a generic address identifies its space.
#pragma once

#include <cstdint>

namespace ladder::machine {

inline constexpr std::uint64_t kSharedWindow = 0x0100'0000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x0200'0000'0000'0000;
/// Offset bits of an address in the local window; the bits above may name its owner (the sanitizer sets
/// them).
inline constexpr std::uint64_t kLocalOffsetMask = 0x0000'0000'ffff'ffff;
inline constexpr std::uint64_t kParamWindow = 0x0300'0000'0000'0000; ///< kernel parameters (cvta.param)
/// Address of a function: its index in the program * 16.
inline constexpr std::uint64_t kFunctionWindow = 0x0400'0000'0000'0000;
inline constexpr std::uint64_t kWindowMask = 0xff00'0000'0000'0000;

} // namespace ladder::machine
