#include "machine/counters.h"

#include <algorithm>

namespace ladder::machine {

AccessCounters &AccessCounters::operator+=(const AccessCounters &other) {
  executed += other.executed;
  wavefronts += other.wavefronts;
  passes += other.passes;
  conflicts += other.conflicts;
  ideal += other.ideal;
  sectors += other.sectors;
  bytes += other.bytes;
  unmodelled += other.unmodelled;
  return *this;
}

void Counters::note(std::uint32_t instruction, const SharedAccess &candidate) {
  const auto [place, is_first] = worst.try_emplace(instruction, candidate);
  SharedAccess &known = place->second;
  const std::uint32_t conflicts = candidate.cost.conflicts, most = known.cost.conflicts;
  if (!is_first && (conflicts > most || (conflicts == most && candidate.block < known.block)))
    known = candidate;
}

template <typename First>
static void keep_first(std::unordered_map<std::uint32_t, First> &all, std::uint32_t instruction,
                       const First &candidate) {
  const auto [place, is_first] = all.try_emplace(instruction, candidate);
  if (!is_first && candidate.block < place->second.block)
    place->second = candidate;
}

void Counters::note(std::uint32_t instruction, const ProductOperands &candidate) {
  keep_first(products, instruction, candidate);
}

void Counters::note(std::uint32_t instruction, const TensorBox &candidate) {
  keep_first(boxes, instruction, candidate);
}

Counters &Counters::operator+=(const Counters &other) {
  executed.resize(std::max(executed.size(), other.executed.size()));
  idle_lanes.resize(std::max(idle_lanes.size(), other.idle_lanes.size()));
  access.resize(std::max(access.size(), other.access.size()));
  for (std::size_t i = 0; i < other.executed.size(); ++i)
    executed[i] += other.executed[i];
  for (std::size_t i = 0; i < other.idle_lanes.size(); ++i)
    idle_lanes[i] += other.idle_lanes[i];
  for (std::size_t i = 0; i < other.access.size(); ++i)
    for (int place = 0; place < 2; ++place)
      if (other.access[i].kind[place] != AccessKind::none)
        access[i].of(other.access[i].kind[place]) += other.access[i].access[place];
  for (const auto &[instruction, candidate] : other.worst)
    note(instruction, candidate);
  for (const auto &[instruction, candidate] : other.products)
    note(instruction, candidate);
  for (const auto &[instruction, candidate] : other.boxes)
    note(instruction, candidate);
  for (const auto &[instruction, more] : other.copies) {
    copies[instruction].count += more.count;
    copies[instruction].places.insert(more.places.begin(), more.places.end());
  }
  return *this;
}

} // namespace ladder::machine
