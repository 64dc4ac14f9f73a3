// Branches, calls, barriers: "Control Flow Instructions" and "Parallel Synchronization" of the PTX manual.
#include "instructions/addressing.h"
#include "instructions/device_runtime_calls.h"
#include "instructions/system_calls.h"
#include "machine/address_space.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::Block;
using machine::FaultError;
using machine::FaultKind;
using machine::Frame;
using machine::Instruction;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

// --- branches

/// op[0] the target, op[1] the reconvergence point.
void branch(Warp &warp, const Instruction &in) { warp.branch(in.op[0], warp.active(), in.op[1]); }

/// op[0] the index, op[1] the reconvergence point, imm the number of targets, which are in more.
void branch_indexed(Warp &warp, const Instruction &in) {
  const std::uint32_t *const index = warp.lanes<std::uint32_t>(in.op[0]);
  const std::uint32_t *const list = warp.more(in);
  std::uint32_t targets[32];
  for (std::uint32_t &target : targets)
    target = warp.pc();
  for_lanes(warp.active(), [&](int lane) {
    if (index[lane] >= std::uint64_t(in.imm))
      throw FaultError(FaultKind::bad_operand,
                       "brx.idx with index " + std::to_string(index[lane]) + " of " + std::to_string(in.imm) +
                           " targets",
                       lane);
    targets[lane] = list[index[lane]];
  });
  warp.branch_indexed(targets, in.op[1]);
}

void exit(Warp &warp, const Instruction &) { warp.exit(); }

void trap(Warp &warp, const Instruction &) {
  throw FaultError(FaultKind::trap, "the program executed a trap", std::countr_zero(warp.active()));
}

void nothing(Warp &, const Instruction &) {}

void sleep(Warp &warp, const Instruction &) {
  warp.note_idle_poll(false);
  warp.yield();
}

// --- calls

// op[0] is the frame index of a direct call's callee, or the slot with an indirect callee's address. More
// holds the number of arguments, the number of returns, and two words for each: its offset in the caller, and
// either 0 (in the parameter area) or the lane width of its register in bytes.

struct CallOperand {
  std::uint32_t offset, lane_bytes;
};

class CallOperands {
public:
  CallOperands(Warp &warp, const Instruction &in) : list_(warp.more(in)) {}
  std::uint32_t arguments() const { return list_[0]; }
  std::uint32_t returns() const { return list_[1]; }
  CallOperand argument(std::uint32_t i) const { return at(i); }
  CallOperand returned(std::uint32_t i) const { return at(arguments() + i); }

private:
  CallOperand at(std::uint32_t i) const { return {list_[2 + 2 * i], list_[3 + 2 * i]}; }
  const std::uint32_t *list_;
};

/// Host address of a call operand in the caller's frame.
std::uint8_t *operand_bytes(Frame &frame, CallOperand operand, int lane, std::uint32_t bytes) {
  if (operand.lane_bytes) {
    if (bytes > operand.lane_bytes)
      throw FaultError(FaultKind::bad_operand,
                       "a parameter of " + std::to_string(bytes) + " bytes in a register", lane);
    return frame.registers + operand.offset + std::uint32_t(lane) * operand.lane_bytes;
  }
  const std::uint32_t area = frame.layout->param_area_bytes;
  if (operand.offset > area || bytes > area - operand.offset)
    throw FaultError(FaultKind::bad_operand, "a parameter is larger than the variable passed for it", lane);
  return frame.params.data() + std::size_t(lane) * area + operand.offset;
}

const program::Function &function_of(Warp &warp, const Frame &frame) {
  return warp.block().code().program->functions[frame.layout->program_function];
}

void check_count(const char *what, std::size_t passed, std::size_t wanted,
                 const program::Function &function) {
  if (passed != wanted)
    throw FaultError(FaultKind::bad_operand, "a call of " + function.name + " with " +
                                                 std::to_string(passed) + " " + what + "; it has " +
                                                 std::to_string(wanted));
}

void pass_arguments(Warp &warp, const Instruction &in, Frame &caller, Frame &callee, std::uint32_t lanes) {
  const CallOperands operands(warp, in);
  const program::Function &function = function_of(warp, callee);
  check_count("arguments", operands.arguments(), function.parameters.size(), function);
  check_count("results", operands.returns(), function.returns.size(), function);
  for (std::uint32_t i = 0; i < operands.arguments(); ++i) {
    const program::Parameter &parameter = function.parameters[i];
    for_lanes(lanes, [&](int lane) {
      std::memcpy(callee.params.data() + std::size_t(lane) * callee.layout->param_area_bytes +
                      parameter.offset,
                  operand_bytes(caller, operands.argument(i), lane, parameter.bytes), parameter.bytes);
    });
  }
}

void call(Warp &warp, const Instruction &in) {
  Frame &caller = warp.frame();
  Frame &callee = warp.call(in.op[0]);
  pass_arguments(warp, in, caller, callee, warp.active());
}

void call_indirect(Warp &warp, const Instruction &in) {
  const std::uint64_t *const addresses = warp.lanes<std::uint64_t>(in.op[0]);
  const std::vector<std::uint32_t> &functions = warp.block().code().layout.functions;
  std::uint32_t targets[32] = {};
  for_lanes(warp.active(), [&](int lane) {
    const std::uint64_t address = addresses[lane], index = (address - machine::kFunctionWindow) / 16;
    // The first is the kernel itself, which cannot be called.
    const auto frame = std::find(functions.begin() + 1, functions.end(), index);
    if ((address & machine::kWindowMask) != machine::kFunctionWindow || address % 16 ||
        frame == functions.end())
      throw FaultError(FaultKind::bad_operand, "a call to an address that is not a function's", lane)
          .at(address);
    targets[lane] = std::uint32_t(frame - functions.begin());
  });
  Frame &caller = warp.frame();
  std::uint32_t left = warp.active();
  for (Frame *const callee : warp.call_indexed(targets)) {
    const std::uint32_t target = targets[std::countr_zero(left)];
    std::uint32_t lanes = 0;
    for_lanes(left, [&](int lane) { lanes |= std::uint32_t(targets[lane] == target) << lane; });
    left &= ~lanes;
    pass_arguments(warp, in, caller, *callee, lanes);
  }
}

void ret(Warp &warp, const Instruction &) {
  Frame &callee = warp.frame();
  if (Frame *const caller = callee.caller.get()) {
    const program::Function &function = function_of(warp, callee);
    const CallOperands operands(warp, warp.block().code().instructions[callee.call_site]);
    for (std::uint32_t i = 0; i < operands.returns(); ++i) {
      const program::Parameter &parameter = function.returns[i];
      for_lanes(warp.active(), [&](int lane) {
        std::memcpy(operand_bytes(*caller, operands.returned(i), lane, parameter.bytes),
                    callee.params.data() + std::size_t(lane) * callee.layout->param_area_bytes +
                        parameter.offset,
                    parameter.bytes);
      });
    }
  }
  warp.ret();
}

class ExternalArguments : public CallArguments {
public:
  ExternalArguments(Warp &warp, const Instruction &in) : frame_(warp.frame()), operands_(warp, in) {}

  std::uint64_t argument(std::size_t index, int lane) const override {
    const CallOperand operand = operand_of(index, lane);
    const std::uint32_t room = operand.lane_bytes
                                   ? operand.lane_bytes
                                   : std::min(8u, frame_.layout->param_area_bytes - operand.offset);
    std::uint64_t value = 0;
    std::memcpy(&value, operand_bytes(frame_, operand, lane, room), room);
    return value;
  }

  const std::uint8_t *bytes(std::size_t index, int lane, std::uint32_t bytes) const override {
    return operand_bytes(frame_, operand_of(index, lane), lane, bytes);
  }

  void set_result(int lane, std::uint64_t value, std::uint32_t bytes) override {
    if (operands_.returns() == 0)
      return;
    const CallOperand operand = operands_.returned(0);
    const std::uint32_t room = operand.lane_bytes ? operand.lane_bytes : bytes;
    std::memcpy(operand_bytes(frame_, operand, lane, room), &value, room);
  }

private:
  CallOperand operand_of(std::size_t index, int lane) const {
    if (index >= operands_.arguments())
      throw FaultError(FaultKind::bad_operand, "a call with too few arguments", lane);
    return operands_.argument(std::uint32_t(index));
  }

  Frame &frame_;
  CallOperands operands_;
};

void call_external(Warp &warp, const Instruction &in) {
  const auto function = reinterpret_cast<SystemCall>(std::uintptr_t(in.imm));
  ExternalArguments arguments(warp, in);
  function(warp, arguments);
}

// --- barriers

// op[0] the barrier, op[1] the number of threads, op[2] the predicate of a reduction, op[3] its destination.
constexpr std::uint32_t kArrive = 1;  ///< arrives without waiting
constexpr std::uint32_t kNegated = 2; ///< the predicate is negated
constexpr std::uint32_t kReductionShift = 2;

/// Value of an operand that must be the same in all active lanes.
std::uint32_t uniform(Warp &warp, std::uint32_t slot, const char *what) {
  const std::uint32_t *const values = warp.lanes<std::uint32_t>(slot);
  const std::uint32_t first = values[std::countr_zero(warp.active())];
  for_lanes(warp.active(), [&](int lane) {
    if (values[lane] != first)
      throw FaultError(FaultKind::bad_operand, std::string(what) + " is not the same in all lanes of a warp",
                       lane);
  });
  return first;
}

void barrier(Warp &warp, const Instruction &in) {
  Block &block = warp.block();
  const std::uint32_t id = uniform(warp, in.op[0], "the barrier");
  if (id >= std::uint32_t(machine::kBarriers))
    throw FaultError(FaultKind::bad_operand, "barrier " + std::to_string(id) + "; there are 0 to 15");
  const auto reduction = Block::Reduction(in.flags >> kReductionShift);
  const bool waits = !(in.flags & kArrive);
  if (!(waits && warp.take_release())) {
    const std::uint32_t threads = uniform(warp, in.op[1], "the number of threads of a barrier");
    std::uint32_t values = 0;
    if (reduction != Block::Reduction::none)
      values = warp.predicate(in.op[2]) ^ (in.flags & kNegated ? ~0u : 0u);
    block.arrive(warp, int(id), threads, waits, reduction, values);
    return;
  }
  if (reduction == Block::Reduction::none)
    return;
  const std::uint32_t result = block.reduction_result(int(id));
  if (reduction == Block::Reduction::popc) {
    std::uint32_t *const to = warp.lanes<std::uint32_t>(in.op[3]);
    for_lanes(warp.active(), [&](int lane) { to[lane] = result; });
  } else {
    warp.set_predicate(in.op[3], result ? ~0u : 0u);
  }
}

/// bar.warp.sync: op[0] the members. Lanes may arrive together with different masks; they then wait for the
/// union of the members.
void warp_barrier(Warp &warp, const Instruction &in) {
  const std::uint32_t *const masks = warp.lanes<std::uint32_t>(in.op[0]);
  std::uint32_t members = 0;
  for_lanes(warp.active(), [&](int lane) {
    if (!(masks[lane] >> lane & 1))
      throw FaultError(FaultKind::bad_operand, "bar.warp.sync by a lane that its member mask does not name",
                       lane);
    members |= masks[lane];
  });
  warp.converge(members);
}

// --- binding

bool bind_bra(Binder &binder) {
  if (binder.operand(0).kind != Operand::Kind::label)
    binder.unsupported("the target is not a label");
  binder.out.op[0] = binder.code_index(binder.operand(0).target);
  binder.out.op[1] = binder.code_index(binder.source.reconverge);
  binder.out.execute = branch;
  return true;
}

bool bind_brx(Binder &binder) {
  if (!binder.has("idx"))
    return false;
  std::vector<std::uint32_t> targets;
  for (const std::uint32_t target : binder.source.targets)
    targets.push_back(binder.code_index(target));
  binder.out.op[0] = binder.source_slot(0, Type::u32);
  binder.out.op[1] = binder.code_index(binder.source.reconverge);
  binder.out.imm = std::int64_t(targets.size());
  binder.set_more(targets);
  binder.out.execute = branch_indexed;
  return true;
}

void add_call_operand(Binder &binder, const Operand &operand, std::vector<std::uint32_t> &list) {
  if (const unsigned lane_bytes = binder.operand_lane_bytes(operand)) {
    list.push_back(binder.raw_slot(operand));
    list.push_back(lane_bytes);
  } else if (operand.kind == Operand::Kind::symbol || operand.kind == Operand::Kind::parameter) {
    const Binder::Address place = binder.address(operand);
    if (place.base != Binder::Address::Base::param_area)
      binder.unsupported(operand.name + " is passed to a function but is not a .param variable");
    list.push_back(std::uint32_t(place.offset));
    list.push_back(0);
  } else {
    list.push_back(binder.source_slot(operand, Type::b64));
    list.push_back(8);
  }
}

bool bind_call(Binder &binder) {
  const Operand &returns = binder.operand(0), &target = binder.operand(1), &arguments = binder.operand(2);
  std::vector<std::uint32_t> list{std::uint32_t(arguments.elements.size()),
                                  std::uint32_t(returns.elements.size())};
  for (const Operand &operand : arguments.elements)
    add_call_operand(binder, operand, list);
  for (const Operand &operand : returns.elements)
    add_call_operand(binder, operand, list);
  binder.set_more(list);

  if (target.kind == Operand::Kind::function) {
    const int index = binder.frame_index(target);
    if (index >= 0) {
      binder.out.op[0] = std::uint32_t(index);
      binder.out.execute = call;
      return true;
    }
    const SystemCall function = find_system_call(target.name);
    if (!function)
      binder.unsupported(target.name.starts_with(kDeviceRuntimePrefix)
                             ? "cuda" + target.name.substr(kDeviceRuntimePrefix.size()) +
                                   " is not emulated in kernels"
                             : "the function " + target.name + " is not defined");
    binder.out.imm = std::int64_t(reinterpret_cast<std::uintptr_t>(function));
    binder.out.execute = call_external;
    return true;
  }
  binder.out.op[0] = binder.source_slot(target, Type::b64);
  binder.out.execute = call_indirect;
  return true;
}

template <machine::Handler handler> bool bind_plain(Binder &binder) {
  binder.out.execute = handler;
  return true;
}

std::uint32_t constant_slot(Binder &binder, std::uint64_t value) {
  Operand operand;
  operand.kind = Operand::Kind::integer;
  operand.bits = value;
  return binder.source_slot(operand, Type::u32);
}

bool bind_bar(Binder &binder) {
  if (binder.has("warp")) {
    binder.out.op[0] = binder.source_slot(0, Type::b32);
    binder.out.execute = warp_barrier;
    return true;
  }
  std::size_t next = 0;
  if (binder.has("red")) {
    const bool counts = binder.has("popc");
    if (!counts && !binder.has("and") && !binder.has("or"))
      return false;
    const auto reduction = counts              ? Block::Reduction::popc
                           : binder.has("and") ? Block::Reduction::all
                                               : Block::Reduction::any;
    binder.out.flags = std::uint32_t(reduction) << kReductionShift;
    const Operand &destination = binder.operand(next++);
    binder.out.op[3] =
        counts ? binder.destination_slot(destination, Type::u32) : binder.destination_predicate(destination);
    const Binder::Predicate value = binder.predicate(binder.operand(binder.operand_count() - 1));
    binder.out.op[2] = value.offset;
    binder.out.flags |= value.negated ? kNegated : 0;
  } else if (binder.has("arrive")) {
    binder.out.flags = kArrive;
  } else if (!binder.has("sync")) {
    return false;
  }
  const std::size_t operands = binder.operand_count() - (binder.has("red") ? 1 : 0);
  binder.out.op[0] = binder.source_slot(next++, Type::u32);
  binder.out.op[1] = next < operands ? binder.source_slot(next, Type::u32) : constant_slot(binder, 0);
  if (binder.has("arrive") && next >= operands)
    binder.unsupported("the number of threads is missing");
  binder.out.execute = barrier;
  return true;
}

constexpr TableEntry kTable[] = {
    {"bra", bind_bra},
    {"brx", bind_brx},
    {"call", bind_call},
    {"ret", bind_plain<ret>},
    {"exit", bind_plain<exit>},
    {"trap", bind_plain<trap>},
    {"brkpt", bind_plain<trap>},
    {"bar", bind_bar},
    {"barrier", bind_bar},
    {"nanosleep", bind_plain<sleep>},
    {"pmevent", bind_plain<nothing>},
    {"griddepcontrol", bind_plain<nothing>},
};

} // namespace

std::span<const TableEntry> control_table() { return kTable; }

} // namespace ladder::instructions
