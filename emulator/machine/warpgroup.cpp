#include "machine/warpgroup.h"

#include "machine/block.h"

#include <algorithm>
#include <string>

namespace ladder::machine {

Warpgroup::Member &Warpgroup::member(const Warp &warp) {
  return members_[std::size_t(warp.index() - first_warp_)];
}
const Warpgroup::Member &Warpgroup::member(const Warp &warp) const {
  return members_[std::size_t(warp.index() - first_warp_)];
}

void Warpgroup::issue(Warp &warp, Product product, const std::uint32_t *d_slots, std::uint32_t d_count) {
  Member &own = member(warp);
  const std::size_t place = own.issued - done_;
  for (int i = 0; i < kWarpsOfGroup; ++i) {
    const Member &other = members_[std::size_t(i)];
    if (&other == &own || other.products.size() <= place)
      continue;
    const Product &same = other.products[place];
    const auto who = [&] { return "warp " + std::to_string(first_warp_ + i) + " of the warpgroup "; };
    if (same.instruction != product.instruction)
      throw FaultError(FaultKind::bad_operand, who() + "is at a different wgmma.mma_async (PTX line " +
                                                   std::to_string(warp.source(*same.instruction).ptx_line) +
                                                   "); all four warps must execute the same one");
    if (same.a != product.a || same.b != product.b)
      throw FaultError(FaultKind::bad_operand,
                       who() + "has a different matrix descriptor; all four warps must have the same one");
    if (same.accumulates != product.accumulates)
      throw FaultError(FaultKind::bad_operand,
                       who() + "has a different scale-d; all four warps must have the same one");
    break; // the other warps were compared with it already
  }
  ++own.issued;
  for (std::uint32_t i = 0; i < d_count; ++i) {
    const std::size_t index = d_slots[i] / kSlotBytes;
    if (index >= own.last_by_register.size())
      own.last_by_register.resize(index + 1);
    own.last_by_register[index] = own.issued;
  }
  own.products.push_back(std::move(product));
  for (int i = 0; i < kWarpsOfGroup; ++i)
    block_->warps()[std::size_t(first_warp_ + i)].release_waits();
}

void Warpgroup::commit(Warp &warp) {
  Member &own = member(warp);
  own.groups.push_back(own.issued);
}

bool Warpgroup::wait(Warp &warp, std::size_t pending) {
  Member &own = member(warp);
  if (own.groups.size() <= pending)
    return true;
  const std::size_t complete = own.groups.size() - pending;
  if (!carry_out_until(own.groups[complete - 1]))
    return false;
  own.groups.erase(own.groups.begin(), own.groups.begin() + std::ptrdiff_t(complete));
  return true;
}

bool Warpgroup::settle(Warp &warp, const std::uint32_t *slots, std::size_t count) {
  const Member &own = member(warp);
  std::uint64_t last = slots ? 0 : own.issued;
  for (std::size_t i = 0; slots && i < count; ++i)
    if (const std::size_t index = slots[i] / kSlotBytes; index < own.last_by_register.size())
      last = std::max(last, own.last_by_register[index]);
  return carry_out_until(last);
}

bool Warpgroup::carry_out_until(std::uint64_t number) {
  if (number <= done_)
    return true;
  for (const Member &member : members_)
    if (member.issued < number)
      return false;
  while (done_ < number) {
    WholeProduct product;
    for (std::size_t i = 0; i < product.size(); ++i)
      product[i] = &members_[i].products.front();
    carry_out_of (*product[0]->instruction)(*block_, product);
    for (Member &member : members_)
      member.products.pop_front();
    ++done_;
  }
  return true;
}

std::string Warpgroup::describe_missing(const Warp &warp) const {
  const Member &own = member(warp);
  std::string text;
  for (int i = 0; i < kWarpsOfGroup; ++i)
    if (members_[std::size_t(i)].issued < own.issued)
      text += (text.empty() ? "warp " : ", warp ") + std::to_string(first_warp_ + i);
  return text;
}

std::string describe_missing_products(Warp &waiting) {
  return waiting.block().warpgroup(waiting.index())->describe_missing(waiting) +
         " of the warpgroup, which must issue the same wgmma";
}

} // namespace ladder::machine
