// Tensor memory: tcgen05.
#include "sanitizer/block_checker.h"

namespace ladder::sanitizer {

using machine::Instruction;
using machine::Warp;

void BlockChecker::tensor_alloc(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_dealloc(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_load(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_store(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_wait(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_fence(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_product(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_copy(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}
void BlockChecker::tensor_commit(Warp &warp, const Instruction &in) {
  carry_out(context(warp, in), warp.active());
}

} // namespace ladder::sanitizer
