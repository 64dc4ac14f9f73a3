#include "runtime/observe/counts.h"

namespace ladder::runtime {

namespace {

using machine::AccessKind;

struct Named {
  std::string_view name;
  bool is_counter;
};

#define COUNTER(name) {#name, true},
#define OTHER(name) {#name, false},
constexpr Named kNamed[] = {
#include "runtime/observe/counters.def"
};
#undef COUNTER
#undef OTHER
static_assert(std::size(kNamed) == kColumns);

class RowBuilder {
public:
  RowBuilder() { row_.fill(0); }

  void add(Column column, std::uint64_t value) {
    if (auto &cell = row_[int(column)])
      *cell += value;
  }
  void clear(Column column) { row_[int(column)].reset(); }

  /// Adds to a direction's three columns, and to `conflicts`.
  void add_shared(const machine::AccessCounters &access, Column wavefronts, Column ideal, Column conflicts) {
    add(wavefronts, access.wavefronts);
    add(ideal, access.ideal);
    add(conflicts, access.conflicts);
    add(Column::conflicts, access.conflicts);
    if (access.unmodelled)
      for (const Column column : {wavefronts, ideal, conflicts, Column::conflicts})
        clear(column);
  }

  void add_bulk(const machine::AccessCounters &access, Column instructions, Column sectors) {
    add(instructions, access.executed);
    add(sectors, access.sectors);
    if (access.unmodelled)
      clear(sectors);
  }

  void add_access(AccessKind kind, const machine::AccessCounters &access) {
    switch (kind) {
    case AccessKind::shared_load:
      add(Column::shared_load_instructions, access.executed);
      add_shared(access, Column::wavefronts_ld, Column::ideal_ld, Column::conflicts_ld);
      break;
    case AccessKind::ldmatrix:
      add(Column::ldmatrix_instructions, access.executed);
      add_shared(access, Column::wavefronts_ld, Column::ideal_ld, Column::conflicts_ld);
      break;
    case AccessKind::shared_store:
      add(Column::shared_store_instructions, access.executed);
      add_shared(access, Column::wavefronts_st, Column::ideal_st, Column::conflicts_st);
      break;
    case AccessKind::stmatrix:
      add_shared(access, Column::wavefronts_st, Column::ideal_st, Column::conflicts_st);
      break;
    case AccessKind::shared_atomic:
      add(Column::conflicts_atom, access.conflicts);
      add(Column::conflicts, access.conflicts);
      if (access.unmodelled) {
        clear(Column::conflicts_atom);
        clear(Column::conflicts);
      }
      break;
    case AccessKind::async_copy:
      add(Column::global_sectors_ld, access.sectors);
      add(Column::conflicts, access.conflicts);
      if (access.unmodelled)
        clear(Column::conflicts);
      break;
    case AccessKind::matrix_operand:
      add(Column::wgmma_instructions, access.executed);
      add(Column::wavefronts_gmma, access.wavefronts);
      add(Column::conflicts_gmma, access.conflicts);
      if (access.unmodelled)
        for (const Column column : {Column::wavefronts_gmma, Column::conflicts_gmma})
          clear(column);
      break;
    case AccessKind::tma_load:
      add_bulk(access, Column::tma_load_instructions, Column::tma_sectors_ld);
      break;
    case AccessKind::tma_store:
      add_bulk(access, Column::tma_store_instructions, Column::tma_sectors_st);
      break;
    case AccessKind::global_load:
      add(Column::global_sectors_ld, access.sectors);
      if (access.unmodelled)
        clear(Column::global_sectors_ld);
      break;
    case AccessKind::global_store:
      add(Column::global_sectors_st, access.sectors);
      if (access.unmodelled)
        clear(Column::global_sectors_st);
      break;
    case AccessKind::global_atomic:
      add(Column::global_atomic_instructions, access.executed);
      break;
    case AccessKind::local_load:
    case AccessKind::local_store:
    case AccessKind::none:
      break;
    }
  }

  const CountRow &row() const { return row_; }

private:
  CountRow row_;
};

bool is_mbarrier(program::Effect effect) {
  using program::Effect;
  return effect == Effect::mbarrier_init || effect == Effect::mbarrier_inval || effect == Effect::mbarrier ||
         effect == Effect::mbarrier_wait || effect == Effect::copy_arrive;
}

std::string collapse_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out;
}

CountRow empty_sum() { return RowBuilder().row(); }

} // namespace

std::string_view column_name(Column column) { return kNamed[int(column)].name; }

bool is_counter(Column column) { return kNamed[int(column)].is_counter; }

CountRow &operator+=(CountRow &row, const CountRow &other) {
  for (int i = 0; i < kColumns; ++i) {
    if (row[i] && other[i])
      *row[i] += *other[i];
    else
      row[i].reset();
  }
  return row;
}

CountRow count_instruction(const machine::Code &code, const machine::Counters &counters, std::size_t index) {
  RowBuilder builder;
  builder.add(Column::executed, counters.executed[index]);
  builder.add(Column::threads, program::kLanes * counters.executed[index] - counters.idle_lanes[index]);
  if (code.sources[index] && code.sources[index]->is(program::Trait::mma))
    builder.add(Column::mma_instructions, counters.executed[index]);
  if (code.sources[index] && is_mbarrier(code.sources[index]->row->effect))
    builder.add(Column::mbarrier_instructions, counters.executed[index]);
  const machine::InstructionCounters &access = counters.access[index];
  for (int place = 0; place < 2; ++place)
    builder.add_access(access.kind[place], access.access[place]);
  return builder.row();
}

CountRow count_all(const machine::Code &code, const machine::Counters &counters) {
  CountRow sum = empty_sum();
  for (std::size_t i = 0; i < code.instructions.size(); ++i)
    sum += count_instruction(code, counters, i);
  return sum;
}

SourcePlace source_place(const machine::Code &code, std::size_t index) {
  return machine::source_place(code, index);
}

std::map<SourcePlace, CountRow> count_lines(const machine::Code &code, const machine::Counters &counters) {
  std::map<SourcePlace, CountRow> lines;
  for (std::size_t i = 0; i < code.instructions.size(); ++i)
    lines.try_emplace(machine::source_place(code, i), empty_sum()).first->second +=
        count_instruction(code, counters, i);
  return lines;
}

std::map<std::pair<SourcePlace, std::string>, CountRow> count_opcodes(const machine::Code &code,
                                                                      const machine::Counters &counters) {
  std::map<std::pair<SourcePlace, std::string>, CountRow> opcodes;
  for (std::size_t i = 0; i < code.instructions.size(); ++i)
    if (code.sources[i] && counters.executed[i])
      opcodes.try_emplace({machine::source_place(code, i), code.sources[i]->full_opcode()}, empty_sum())
          .first->second += count_instruction(code, counters, i);
  return opcodes;
}

std::vector<std::string> ptx_texts(const machine::Code &code) {
  const std::string_view text = code.program->module.text;
  std::vector<std::size_t> line_begins = {0, 0}; // lines count from 1
  for (std::size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1))
    line_begins.push_back(at + 1);

  std::vector<std::string> texts;
  for (const program::Instruction *source : code.sources) {
    if (!source) {
      texts.emplace_back();
      continue;
    }
    const std::string opcode = source->full_opcode();
    const std::size_t line = std::size_t(source->ptx_line);
    // Inline assembly puts several instructions on a line, so search for the opcode, then for its guard
    // before it.
    std::size_t begin =
        line < line_begins.size() ? text.find(opcode, line_begins[line]) : std::string_view::npos;
    std::size_t end = text.find(';', begin == std::string_view::npos ? text.size() : begin);
    if (end == std::string_view::npos) {
      texts.push_back(opcode);
      continue;
    }
    const std::size_t before = text.find_last_of(";{}\n", begin);
    const std::size_t guard = text.find('@', before == std::string_view::npos ? 0 : before);
    if (guard < begin)
      begin = guard;
    texts.push_back(collapse_spaces(text.substr(begin, end - begin)));
  }
  return texts;
}

} // namespace ladder::runtime
