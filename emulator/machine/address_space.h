// Where the windows of generic addresses lie. Global addresses are host pointers as they are; the other
// windows are at addresses that no user-space pointer has, so that a generic address tells its space.
#pragma once

#include <cstdint>

namespace ladder::machine {

inline constexpr std::uint64_t kSharedWindow = 0x0100'0000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x0200'0000'0000'0000;
/// Of an address in the local window: the bits above may say whose it is (the sanitizer sets them).
inline constexpr std::uint64_t kLocalOffsetMask = 0x0000'0000'ffff'ffff;
inline constexpr std::uint64_t kParamWindow = 0x0300'0000'0000'0000; ///< kernel parameters (cvta.param)
inline constexpr std::uint64_t kFunctionWindow =
    0x0400'0000'0000'0000; ///< address of a function: its index in the program * 16
inline constexpr std::uint64_t kWindowMask = 0xff00'0000'0000'0000;

} // namespace ladder::machine
