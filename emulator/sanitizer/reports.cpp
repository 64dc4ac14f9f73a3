// Turns the events of an instruction's checks into findings.
#include "instructions/shuffle.h"
#include "machine/address_space.h"
#include "sanitizer/block_checker.h"

namespace ladder::sanitizer {

namespace {

bool has_effect(const machine::Code &code, const Access &access, program::Effect effect) {
  return access.epoch && code.sources[access.instruction]->row->effect == effect;
}

bool is_setup_of_mbarrier(const machine::Code &code, const Access &access) {
  return has_effect(code, access, program::Effect::mbarrier_init);
}

} // namespace

std::array<std::uint32_t, 3> BlockChecker::launch_place(std::uint32_t block) const {
  const machine::Dim3 grid = block_.launch().grid;
  return {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
}

void BlockChecker::report(const Context &at, unsigned bytes) {
  while (!events_.empty()) {
    const Event first = events_.front();
    std::uint32_t lanes = 0;
    std::uint64_t count = 0;
    std::erase_if(events_, [&](const Event &event) {
      const bool same = event.kind == first.kind && event.past.instruction == first.past.instruction &&
                        (event.past.epoch == 0) == (first.past.epoch == 0);
      lanes |= std::uint32_t(same) << event.lane;
      count += same;
      return same;
    });
    const std::uint32_t other = first.past.epoch ? first.past.instruction : kNoInstruction;
    launch_.findings().add({first.kind, &launch_.code(), at.index, other}, count,
                           [&] { return describe(at, first, lanes, bytes); });
  }
}

Finding BlockChecker::describe(const Context &at, const Event &event, std::uint32_t lanes,
                               unsigned bytes) const {
  Finding finding;
  finding.kind = event.kind;
  finding.kernel = launch_.kernel();
  const machine::Dim3 block = block_.index();
  finding.who = launch_.party({block.x, block.y, block.z}, at.warp.index(), lanes, at.index);
  constexpr const char *kSpaces[] = {"", "shared", "global", "local"};
  const bool is_value = event.where > Where::local;
  finding.space = is_value ? "" : kSpaces[std::size_t(event.where)];
  finding.address = event.address;
  finding.has_address = event.where != Where::none && !is_value;
  finding.bytes = bytes;
  if (event.past.epoch) {
    finding.other = launch_.party(launch_place(event.past.block), event.past.thread / 32,
                                  1u << event.past.thread % 32, event.past.instruction);
  }
  if (event.where == Where::shared) {
    const std::uint64_t offset = event.address - block_.shared_begin();
    std::tie(finding.object, finding.object_offset) = launch_.shared_variable(offset);
  } else if (event.where == Where::global) {
    if (const machine::MemoryRange *const range = launch_.memory().find(event.address, 1)) {
      finding.object = range->name;
      finding.object_offset = event.address - range->begin;
    }
  }
  const std::string size = std::to_string(bytes) + " bytes of " + finding.space + " memory";
  const std::string now = event.now_writes ? "writes " : "reads ", past = event.past_wrote ? "wrote" : "read";
  switch (event.kind) {
  case Kind::out_of_bounds:
    finding.message = "accesses " + size + " outside ";
    if (event.where == Where::shared && event.address >= block_.shared_begin() &&
        event.address + bytes <= block_.shared_end() && at.site.object_end) {
      finding.message += launch_.shared_variable(at.site.object_begin).first + ", which has " +
                         std::to_string(at.site.object_end - at.site.object_begin) + " bytes";
    } else if (event.where == Where::shared) {
      finding.message +=
          "the block's " + std::to_string(block_.shared_end() - block_.shared_begin()) + " bytes";
    } else if (event.where == Where::local && event.address & machine::kWindowMask) {
      finding.message = "accesses " + size + " of another thread, or of a thread that has exited";
    } else if (event.where == Where::local) {
      finding.message += "the thread's " + std::to_string(at.warp.local_top()) + " bytes";
    } else {
      finding.message += "all allocations: " + launch_.memory().describe(event.address);
    }
    if (const auto fault =
            event.where == Where::global ? launch_.heap().check(event.address, bytes) : std::nullopt)
      finding.message = "accesses " + size + " " + fault->message;
    break;
  case Kind::use_after_free:
  case Kind::host_pointer:
    if (const auto fault = launch_.heap().check(event.address, bytes))
      finding.message = fault->message;
    else
      finding.message = launch_.explain(event.address).value_or(Stray{}).message;
    break;
  case Kind::misaligned:
    finding.message =
        "accesses " + size + " at an address that is not a multiple of " + std::to_string(bytes);
    break;
  case Kind::read_only:
    finding.message = event.now_writes || !event.past.epoch
                          ? "writes " + size + " that is read-only"
                          : "reads " + size +
                                " through the read-only path after this launch wrote them: the load may "
                                "return what was there before";
    break;
  case Kind::uninitialised:
    finding.message =
        event.where == Where::decides_branch ? "branches on a value loaded from memory that was never written"
        : event.where == Where::is_address   ? "uses an address loaded from memory that was never written"
        : event.where == Where::is_stored    ? "stores a value loaded from memory that was never written"
                                             : "reads " + size + " that were never written";
    break;
  case Kind::async_copy:
    finding.message = now + size + " while a copy to them is still in flight";
    break;
  case Kind::async_read:
    finding.message = now + size + " that an asynchronous instruction may still be reading";
    break;
  case Kind::proxy:
    finding.message = is_setup_of_mbarrier(launch_.code(), event.past)
                          ? "uses an mbarrier whose initialisation the async proxy may not see yet, with no "
                            "fence.mbarrier_init or fence.proxy.async in between"
                          : now + size + " through the async proxy that a thread " + past +
                                (event.past_wrote ? "" : " by ldmatrix") +
                                ", with no fence.proxy.async in between";
    break;
  case Kind::swizzle:
    finding.message = "reads a tile that TMA wrote with a swizzle other than the matrix descriptor's";
    break;
  case Kind::election:
    finding.message =
        std::to_string(event.address) + " lanes of the warp each issue this " +
        (at.warp.source(at.in).is(program::Trait::mma) ? "product, which is executed once per lane"
         : at.warp.source(at.in).is(program::Trait::reduces)
             ? "reduction, which is applied once per lane"
             : "copy, and the mbarrier receives the bytes of all of them");
    break;
  case Kind::race_warps:
    finding.message = now + size + " that another warp " + past + ", with no barrier in between";
    break;
  case Kind::race_lanes:
    finding.message =
        now + size + " that another lane of the warp " + past + ", with no __syncwarp() in between";
    break;
  case Kind::race_equal:
    finding.message =
        now + size + " that another thread " + past +
        ", and nothing orders the two; here the write does not change the value, with other data it may";
    break;
  case Kind::flag:
    finding.message =
        event.where == Where::none
            ? std::to_string(event.address) +
                  " lanes of the warp each issue this store of the same bytes to the same address"
            : "writes a constant to " + size + " where another thread " + past +
                  " the same constant, and nothing orders the two";
    break;
  case Kind::parity:
    finding.message = "waits for an mbarrier's phase by a parity other than 0 and 1, of which bit 0 counts";
    break;
  case Kind::order:
    finding.message = "adds to " + size + " that another thread added to, and nothing orders the two";
    break;
  case Kind::race_blocks:
    finding.message =
        event.where != Where::shared
            ? now + size + " that another block " + past + " in the same launch, and " +
                  (at.site.flags & event.past.flags & Access::strong
                       ? "an atomic of block scope is not atomic for other blocks"
                       : "nothing orders the two")
        : is_setup_of_mbarrier(launch_.code(), event.past)
            ? "uses an mbarrier that another block initialised, and nothing makes the initialisation visible"
            : now + size + " that another block of the cluster " + past + ", and nothing orders the two";
    break;
  case Kind::product_wait:
    finding.message =
        "uses a register of a wgmma that is still in flight, with no wgmma.wait_group in between";
    break;
  case Kind::product_fence:
    finding.message = event.past.epoch
                          ? "uses a register that the warp accessed earlier, with no wgmma.fence in between"
                          : "is issued before any wgmma.fence";
    break;
  case Kind::barrier:
    finding.message =
        has_effect(launch_.code(), event.past, program::Effect::mbarrier_wait)
            ? "lets a phase of an mbarrier complete although a warp may still wait for the previous one: it "
              "may miss the end of that phase and wait for ever"
        : !at.site.is_mbarrier ? "stores data over a live mbarrier: mbarrier.inval must come first"
        : is_setup_of_mbarrier(launch_.code(), event.past)
            ? "initialises an mbarrier that is already initialised: mbarrier.inval must come first"
        : at.warp.source(at.in).row->effect == program::Effect::mbarrier_wait
            ? "waits for a phase of an mbarrier after all that the next one needs has been issued: the warp "
              "may miss the end of its phase and wait for ever"
        : event.now_writes ? "completes a phase of an mbarrier before any thread has observed the end of the "
                             "previous phase: a wait by parity cannot tell them apart"
                           : "arrives at an mbarrier without waiting for the end of the previous phase: the "
                             "arrival may count for that phase";
    break;
  case Kind::mask:
    if (event.address == std::uint64_t(event.lane)) {
      finding.message = "is executed by a lane that its member mask does not name";
      break;
    }
    finding.message = "reads the value of lane " + std::to_string(event.address) +
                      (instructions::members_of(at.warp, at.in, event.lane) >> event.address & 1
                           ? ", which the member mask names but which does not execute the instruction"
                           : ", which the member mask does not name");
    break;
  default:
    break;
  }
  const bool may_follow = event.kind == Kind::out_of_bounds || event.kind == Kind::use_after_free ||
                          event.kind == Kind::host_pointer || event.kind == Kind::uninitialised;
  if (may_follow && event.where == Where::global)
    finding.message += launch_.after();
  return finding;
}

} // namespace ladder::sanitizer
