// Loads whose values nothing uses. ptxas drops them, so hardware does not count them.
#pragma once

#include "program/program.h"

#include <cstddef>
#include <vector>

namespace ladder::program {

/// Sets Instruction::is_dead for every load whose registers reach no instruction with an effect, not even
/// through other registers or shuffles. Registers must still be virtual, `registers` many (see
/// VirtualRegister). Of several writes to one register either all are dead or none is.
void find_dead_loads(std::vector<Instruction> &code, std::size_t registers);

} // namespace ladder::program
