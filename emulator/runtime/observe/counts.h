// The counter columns of the table: aggregates counters by instruction and access kind into what users read.
#pragma once

#include "machine/code.h"
#include "machine/counters.h"
#include "machine/source_place.h"
#include "runtime/work/visibility.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ladder::runtime {

#define COUNTER(name) name,
#define OTHER(name) name,
enum class Column {
#include "runtime/observe/counters.def"
};
inline constexpr int kColumns = int(Column::mbarrier_instructions) + 1;
#undef COUNTER
#undef OTHER

LADDER_API std::string_view column_name(Column column);
/// Whether the table of counts has it.
LADDER_API bool is_counter(Column column);

/// A cell is empty if it would include an access that the model does not cover.
using CountRow = std::array<std::optional<std::uint64_t>, kColumns>;

/// Adds cell by cell; a cell that is empty in either row is empty in the sum.
LADDER_API CountRow &operator+=(CountRow &row, const CountRow &other);

LADDER_API CountRow count_instruction(const machine::Code &code, const machine::Counters &counters,
                                      std::size_t index);
LADDER_API CountRow count_all(const machine::Code &code, const machine::Counters &counters);

using machine::SourcePlace;

LADDER_API SourcePlace source_place(const machine::Code &code, std::size_t index);
LADDER_API std::map<SourcePlace, CountRow> count_lines(const machine::Code &code,
                                                       const machine::Counters &counters);
/// The instructions that were executed, by line and full opcode.
std::map<std::pair<SourcePlace, std::string>, CountRow> count_opcodes(const machine::Code &code,
                                                                      const machine::Counters &counters);
/// The instructions as written in the PTX, in order.
LADDER_API std::vector<std::string> ptx_texts(const machine::Code &code);

} // namespace ladder::runtime
