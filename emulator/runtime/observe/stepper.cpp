#include "runtime/observe/stepper.h"

#include "instructions/addressing.h"
#include "instructions/mbarrier.h"
#include "machine/cluster.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/counts.h"
#include "runtime/observe/launch_log.h"

#include <algorithm>
#include <cstring>

namespace ladder::runtime {

using machine::Frame;
using machine::Warp;

namespace {

std::string text_of(const std::uint8_t *begin, std::uint64_t bytes) {
  return {reinterpret_cast<const char *>(begin), bytes};
}

} // namespace

// --- stopping

void Stepper::begin(machine::LaunchContext &launch) {
  launch_ = &launch;
  ++launches_;
  number_ = lanes_ = 0;
  warp_ = nullptr;
  from_.reset();
  fault_.clear();
  mbarriers_.clear();
  breakpoints_.assign(launch.code->instructions.size(), false);
  launch.debugger = this;
  on_stop_(Why::launched);
}

void Stepper::end() {
  ++number_; // the end comes after the last instruction
  warp_ = nullptr;
  on_stop_(Why::ended);
  launch_ = nullptr;
}

void Stepper::before(Warp &warp, std::uint32_t lanes) {
  ++number_;
  warp_ = &warp;
  lanes_ = lanes;
  if (const std::optional<Why> why = due(warp, lanes))
    on_stop_(*why);
  note_mbarriers(warp, lanes);
  last_ = {warp.block().linear_index(), warp.index(), warp.pc()};
}

void Stepper::faulted(Warp &warp, const machine::FaultError &error) {
  warp_ = &warp;
  fault_ = error.fault.message;
  on_stop_(Why::faulted);
}

std::optional<Stepper::Why> Stepper::due(Warp &warp, std::uint32_t lanes) {
  // Ends its step even if there is a reason to stop that goes first.
  const bool stepped = step_ends(warp, lanes);
  if (number_ == target_)
    return Why::reached;
  if (interrupted_.exchange(false, std::memory_order_relaxed))
    return Why::interrupted;
  if (!watches_.empty() && watch_changed(warp))
    return Why::watched;
  if (stops_at_findings_ && Checking::active()) {
    const std::size_t found = Checking::active()->findings().size();
    if (std::exchange(findings_, found) != found)
      return Why::found;
  }
  if (stepped)
    return Why::stepped;
  return breakpoints_[warp.pc()] && lanes && !warp.released() ? std::optional(Why::breakpoint) : std::nullopt;
}

void Stepper::set_breakpoints(const std::vector<std::uint32_t> &instructions) {
  std::fill(breakpoints_.begin(), breakpoints_.end(), false);
  for (const std::uint32_t instruction : instructions)
    breakpoints_.at(instruction) = true;
}

void Stepper::set_watches(std::vector<Watch> watches) {
  watches_ = std::move(watches);
  if (warp_)
    watch_changed(*warp_); // sees the values for the first time
}

void Stepper::set_stops_at_findings(bool stops) {
  stops_at_findings_ = stops;
  findings_ = Checking::active() ? Checking::active()->findings().size() : 0;
}

void Stepper::set_step(Step step, Focus focus) {
  step_ = step;
  focus_ = focus;
  from_.reset();
  if (!warp_ || warp_->block().linear_index() != focus.block || warp_->index() != focus.warp ||
      !(warp_->path_mask() >> focus.lane & 1))
    return;
  from_ = From{warp_->pc(), depth_of(warp_->pc(), warp_->frame()), line_of(warp_->pc())};
}

bool Stepper::step_ends(const Warp &warp, std::uint32_t lanes) {
  if (step_ == Step::none || warp.index() != focus_.warp || !(warp.path_mask() >> focus_.lane & 1))
    return false;
  auto &stepping = const_cast<Warp &>(warp);
  if (stepping.block().linear_index() != focus_.block || warp.released())
    return false;
  const std::uint32_t at = warp.pc();
  if (step_ == Step::instruction)
    return true;
  if (step_ == Step::barrier)
    return lanes && launch_->code->sources[at]->is(program::Trait::barrier);
  const std::uint64_t line = line_of(at);
  const std::uint32_t depth = depth_of(at, stepping.frame());
  // Arguments are not yet where the debug information says on the line of a function's head.
  const bool is_head = line == line_of(stepping.frame().layout->entry);
  if (!from_) {
    if (step_ == Step::out)
      from_ = From{at, depth, line};
    return step_ != Step::out && line && !is_head;
  }
  if (step_ == Step::out)
    return line && depth < from_->depth;
  if (line == 0 || (depth > from_->depth && (step_ == Step::over || is_head)))
    return false;
  if (depth < from_->depth) { // the rest of the line that called belongs to it
    from_ = From{at, depth, at ? line_of(at - 1) : 0};
    return line != from_->line;
  }
  return line != from_->line || depth != from_->depth || at == from_->instruction;
}

bool Stepper::watch_changed(Warp &warp) {
  machine::Block &block = warp.block();
  for (std::size_t i = 0; i < watches_.size(); ++i) {
    Watch &watch = watches_[i];
    if (watch.is_shared && watch.block != block.linear_index())
      continue;
    const std::uint8_t *const now = watch.is_shared
                                        ? block.shared_base() + block.shared_begin() + watch.address
                                        : reinterpret_cast<const std::uint8_t *>(watch.address);
    if (watch.value.size() == watch.bytes && std::memcmp(watch.value.data(), now, watch.bytes) == 0)
      continue;
    const bool is_first = watch.value.empty();
    watch.value.assign(now, now + watch.bytes);
    if (is_first)
      continue;
    watched_ = i;
    return true;
  }
  return false;
}

void Stepper::note_mbarriers(Warp &warp, std::uint32_t lanes) {
  const machine::Code &code = *launch_->code;
  if (!lanes || code.sources[warp.pc()]->row->effect != program::Effect::mbarrier_init)
    return;
  const machine::Instruction &in = code.instructions[warp.pc()];
  instructions::LaneAccess access;
  try {
    instructions::resolve(warp, instructions::address_space(in.flags), instructions::address_base(in.flags),
                          in.op[0], in.imm, lanes, 8, 8, instructions::Direction::read, access);
  } catch (const machine::FaultError &) {
    return; // the instruction itself will fault
  }
  for (int lane = 0; lane < 32; ++lane)
    if (lanes & access.shared_lanes & (1u << lane))
      mbarriers_.emplace(warp.block().linear_index(), access.shared[std::size_t(lane)]);
}

std::uint64_t Stepper::line_of(std::uint32_t instruction) const {
  const program::Instruction &source = *launch_->code->sources[instruction];
  if (source.location < 0)
    return 0;
  const ptx::SourcePosition &place =
      launch_->code->program->module.locations[std::size_t(source.location)].chain.front();
  return std::uint64_t(place.file) << 32 | std::uint32_t(place.line);
}

std::uint32_t Stepper::depth_of(std::uint32_t instruction, const Frame &frame) const {
  const int location = launch_->code->sources[instruction]->location;
  const std::size_t inlined =
      location < 0 ? 0 : launch_->code->program->module.locations[std::size_t(location)].chain.size();
  return std::uint32_t(frame.depth) << 8 | std::uint32_t(std::min<std::size_t>(inlined, 255));
}

// --- looking

std::vector<machine::MemoryRange> Stepper::memory() const { return launch_->memory->ranges(); }

std::string Stepper::kernel() const { return demangle(launch_->code->kernel); }

machine::Block &Stepper::block(std::uint32_t rank) const { return warp_->block().cluster().block(rank); }

std::vector<Stepper::WarpAt> Stepper::warps() const {
  std::vector<WarpAt> all;
  if (!warp_)
    return all;
  for (std::uint32_t rank = 0; rank < warp_->block().cluster().size(); ++rank)
    for (const Warp &warp : block(rank).warps())
      all.push_back({block(rank).linear_index(), rank, warp.index(), warp.lanes_at()});
  return all;
}

std::shared_ptr<Frame> Stepper::frame_of(const Call &call) const {
  for (const machine::LanesAt &at : block(call.rank).warps().at(std::size_t(call.warp)).lanes_at()) {
    if (!(at.lanes >> call.lane & 1))
      continue;
    std::shared_ptr<Frame> frame = at.frame;
    for (int level = 0; level < call.level && frame; ++level)
      frame = frame->caller;
    return frame;
  }
  return nullptr;
}

std::vector<std::uint32_t> Stepper::calls(const Call &call) const {
  std::vector<std::uint32_t> all;
  for (const machine::LanesAt &at : block(call.rank).warps().at(std::size_t(call.warp)).lanes_at()) {
    if (!(at.lanes >> call.lane & 1))
      continue;
    all.push_back(at.pc);
    for (std::shared_ptr<Frame> frame = at.frame; frame->caller; frame = frame->caller)
      all.push_back(frame->call_site);
  }
  return all;
}

const program::Function &Stepper::function_of(const Frame &frame) const {
  return launch_->code->program->functions[frame.layout->program_function];
}

std::vector<std::uint64_t> Stepper::register_values(const Call &call, const std::string &name) const {
  const std::shared_ptr<Frame> frame = frame_of(call);
  if (!frame)
    return {};
  const auto &registers = function_of(*frame).registers;
  const auto found = registers.find(name);
  if (found == registers.end())
    return {};
  const std::uint8_t *const slot = frame->registers + found->second.offset;
  std::vector<std::uint64_t> values(32);
  const unsigned bytes = program::lane_bytes(found->second.type);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    if (bytes == 0) {
      std::uint32_t mask;
      std::memcpy(&mask, slot, sizeof mask);
      values[lane] = mask >> lane & 1;
    } else {
      std::memcpy(&values[lane], slot + lane * bytes, std::min(bytes, 8u));
    }
  }
  return values;
}

std::optional<std::string> Stepper::local(const Call &call, const std::string &symbol, std::uint64_t offset,
                                          std::uint64_t bytes) const {
  const std::shared_ptr<Frame> frame = frame_of(call);
  if (!frame)
    return std::nullopt;
  for (const program::Symbol &one : launch_->code->program->symbols)
    if (one.function == frame->layout->program_function && one.name == symbol) {
      if (offset > one.bytes || bytes > one.bytes - offset)
        return std::nullopt;
      Warp &warp = block(call.rank).warps().at(std::size_t(call.warp));
      return text_of(warp.local_of(*frame, call.lane, one.offset + offset, bytes), bytes);
    }
  return std::nullopt;
}

std::optional<std::string> Stepper::parameter(const Call &call, const std::string &name, std::uint64_t offset,
                                              std::uint64_t bytes) const {
  const std::shared_ptr<Frame> frame = frame_of(call);
  if (!frame)
    return std::nullopt;
  const program::Function &function = function_of(*frame);
  for (const program::Parameter &parameter : function.parameters) {
    if (parameter.name != name || offset > parameter.bytes || bytes > parameter.bytes - offset)
      continue;
    const std::uint8_t *const all =
        function.is_entry ? launch_->params.data()
                          : frame->params.data() + std::size_t(call.lane) * frame->layout->param_area_bytes;
    return text_of(all + parameter.offset + offset, bytes);
  }
  return std::nullopt;
}

std::optional<std::string> Stepper::generic(const Call &call, std::uint64_t address,
                                            std::uint64_t bytes) const {
  try {
    Warp &warp = block(call.rank).warps().at(std::size_t(call.warp));
    return text_of(instructions::resolve_lane(warp, instructions::Space::generic, call.lane, address, bytes,
                                              instructions::Direction::read),
                   bytes);
  } catch (const machine::FaultError &) {
    return std::nullopt;
  }
}

std::string Stepper::shared(std::uint32_t rank) const {
  machine::Block &one = block(rank);
  return text_of(one.shared_base() + one.shared_begin(), one.shared_end() - one.shared_begin());
}

std::optional<std::uint64_t> Stepper::shared_offset(const std::string &symbol) const {
  const program::KernelLayout &layout = launch_->code->layout;
  for (const auto &[index, offset] : layout.shared_offsets)
    if (launch_->code->program->symbols[index].name == symbol)
      return offset;
  const auto found = launch_->code->program->symbol_index.find(symbol);
  if (found != launch_->code->program->symbol_index.end() &&
      launch_->code->program->symbols[found->second].is_dynamic_shared)
    return layout.dynamic_shared_offset;
  return std::nullopt;
}

std::vector<std::pair<std::uint32_t, std::string>> Stepper::mbarriers(std::uint32_t rank) const {
  std::vector<std::pair<std::uint32_t, std::string>> all;
  machine::Block &one = block(rank);
  for (const auto &[index, address] : mbarriers_) {
    if (index != one.linear_index())
      continue;
    std::uint64_t bits;
    std::memcpy(&bits, one.shared_base() + address, sizeof bits);
    all.emplace_back(address - one.shared_begin(), instructions::describe_mbarrier(bits));
  }
  return all;
}

std::vector<Stepper::InstructionRow> Stepper::instructions() const {
  const machine::Code &code = *launch_->code;
  const ptx::Module &module = code.program->module;
  std::vector<InstructionRow> rows;
  std::vector<std::string> texts = ptx_texts(code);
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    const program::Instruction &source = *code.sources[i];
    InstructionRow &row = rows.emplace_back();
    row.function = code.program->functions[code.layout.functions[code.owner[i]]].name;
    row.ptx_line = source.ptx_line;
    row.ptx = std::move(texts[i]);
    if (source.location < 0)
      continue;
    for (const ptx::SourcePosition &place : module.locations[std::size_t(source.location)].chain) {
      const auto file = module.files.find(place.file);
      row.positions.emplace_back(file == module.files.end() ? "" : file->second, place.line, place.column,
                                 place.function);
    }
  }
  return rows;
}

} // namespace ladder::runtime
