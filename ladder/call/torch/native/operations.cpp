// torch's operations on the emulated device: each runs torch's CPU kernel on the same memory.
//
// A CUDA tensor and its stand-in on the CPU share memory, sizes and strides. Results that are views of an
// argument become views of the CUDA tensor; new results are copied to the device. So these operations give
// the values that torch gives on the CPU, and only the user's own kernels are emulated and counted.
#include "device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <vector>

/// The emulator's (runtime/work/host_work.cpp).
extern "C" void ladder_device_memory_used(const void *begin, std::size_t bytes, int writes);

namespace ladder::torch_device {

namespace {

using at::Tensor;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

const DispatchKeySet kDeviceKeys{c10::DispatchKey::CUDA};

/// Operations that take tensors of both devices.
constexpr std::string_view kMixed[] = {"aten::copy_",
                                       "aten::_copy_from",
                                       "aten::index.",
                                       "aten::_index_put_impl_",
                                       "aten::index_put",
                                       "aten::_to_copy",
                                       "aten::_pack_padded_sequence",
                                       "aten::is_set_to",
                                       "aten::_ctc_loss"};
/// Operations of libraries for GPUs that are not emulated.
constexpr std::string_view kMissing[] = {
    "aten::cudnn_", "aten::_cudnn", "aten::miopen", "aten::_flash_attention", "aten::_efficient_attention",
    "aten::_cslt",  "aten::_cufft"};

bool starts_with_any(std::string_view name, c10::ArrayRef<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; });
}

/// The memory between a tensor's first and last element.
std::pair<const char *, std::size_t> span_of(const Tensor &tensor) {
  if (tensor.numel() == 0)
    return {nullptr, 0};
  std::size_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    last += std::size_t((tensor.size(d) - 1) * tensor.stride(d));
  return {static_cast<const char *>(tensor.const_data_ptr()), (last + 1) * tensor.element_size()};
}

void note_use(const Tensor &tensor, bool writes) {
  if (const auto [begin, bytes] = span_of(tensor); bytes)
    ladder_device_memory_used(begin, bytes, writes);
}

/// A call's CUDA tensors and their stand-ins.
class StandIns {
public:
  explicit StandIns(std::string name) : name_(std::move(name)) {}

  Tensor on_cpu(const Tensor &tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) {
      if (tensor.defined() && tensor.is_cpu() && tensor.dim() > 0)
        cpu_tensor_ = true;
      return tensor;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, name_, ": ", tensor.layout(),
                                " tensors are not emulated on cuda. Use dense tensors.");
    cuda_tensor_ = true;
    for (const Pair &known : pairs_)
      if (known.original.is_same(tensor))
        return known.stand_in;
    const Tensor made = view_on(storage_for(tensor), DispatchKeySet(c10::DispatchKey::CPU), tensor);
    pairs_.push_back({tensor, made});
    return made;
  }

  /// Throws if a call that is no copy has tensors of both devices.
  void require_one_device() const {
    TORCH_CHECK(
        !cpu_tensor_ || !cuda_tensor_ || starts_with_any(name_, kMixed),
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        "(in the call of ",
        name_, ")");
  }

  /// Carries over what the call did to the stand-ins: new memory, sizes and strides.
  void settle() {
    for (Shared &one : storages_)
      if (one.stand_in.data() != one.original.data() || one.stand_in.nbytes() != one.original.nbytes()) {
        const std::size_t bytes = one.stand_in.nbytes();
        c10::DataPtr memory = c10::GetAllocator(c10::DeviceType::CUDA)->allocate(bytes);
        if (bytes)
          check(cudaMemcpy(memory.get(), one.stand_in.data(), bytes, cudaMemcpyDefault), "cudaMemcpy");
        one.original.set_data_ptr_noswap(std::move(memory));
        one.original.set_nbytes(bytes);
      }
    for (Pair &pair : pairs_)
      if (pair.stand_in.sizes() != pair.original.sizes() ||
          pair.stand_in.strides() != pair.original.strides() ||
          pair.stand_in.storage_offset() != pair.original.storage_offset())
        pair.original.unsafeGetTensorImpl()->set_sizes_and_strides(
            pair.stand_in.sizes(), pair.stand_in.strides(), pair.stand_in.storage_offset());
  }

  /// The CUDA tensor for a result: an argument, a view of one, or a copy.
  Tensor on_device(const Tensor &result) {
    if (!result.defined() || !result.is_cpu())
      return result;
    TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == at::kStrided, name_, ": ", result.layout(),
                                " tensors are not emulated on cuda. Use dense tensors.");
    for (const Pair &pair : pairs_)
      if (pair.stand_in.is_same(result))
        return pair.original;
    for (const Shared &one : storages_)
      if (result.has_storage() && one.stand_in.is_alias_of(result.storage()))
        return view_on(one.original, kDeviceKeys, result);
    const c10::Storage storage = device_storage(result.storage().nbytes());
    const Tensor made = view_on(storage, kDeviceKeys, result);
    if (storage.nbytes())
      check(cudaMemcpy(storage.mutable_data(), result.storage().data(), storage.nbytes(),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    return made;
  }

  const std::string &name() const { return name_; }

private:
  struct Pair {
    Tensor original, stand_in;
  };
  struct Shared {
    c10::Storage original, stand_in;
  };

  static c10::Storage device_storage(std::size_t bytes) {
    c10::Allocator *const allocator = c10::GetAllocator(c10::DeviceType::CUDA);
    return {c10::Storage::use_byte_size_t{}, bytes, allocator->allocate(bytes), allocator, true};
  }

  /// A tensor on `storage` with the sizes, strides and type of `like`.
  static Tensor view_on(const c10::Storage &storage, DispatchKeySet keys, const Tensor &like) {
    c10::Storage shared = storage;
    Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(shared), keys, like.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (like.is_conj())
      made._set_conj(true);
    if (like.is_neg())
      made._set_neg(true);
    if (like.unsafeGetTensorImpl()->is_wrapped_number())
      made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }

  const c10::Storage &storage_for(const Tensor &tensor) {
    for (const Shared &one : storages_)
      if (one.original.is_alias_of(tensor.storage()))
        return one.stand_in;
    const c10::Storage &original = tensor.storage();
    auto *const kept = new c10::Storage(original);
    c10::DataPtr memory(
        kept->mutable_data(), kept, [](void *held) { delete static_cast<c10::Storage *>(held); },
        c10::Device(c10::DeviceType::CPU));
    storages_.push_back(
        {original, c10::Storage(c10::Storage::use_byte_size_t{}, original.nbytes(), std::move(memory),
                                c10::GetAllocator(c10::DeviceType::CPU), true)});
    return storages_.back().stand_in;
  }

  std::string name_;
  std::vector<Pair> pairs_;
  std::vector<Shared> storages_;
  bool cuda_tensor_ = false, cpu_tensor_ = false;
};

/// Replaces the tensors and devices in a value.
template <typename Change> IValue changed(const IValue &value, bool to_cpu, const Change &change) {
  if (value.isTensor())
    return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &one : value.toTensorVector())
      list.push_back(change(one));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor> &one : value.toOptionalTensorVector())
      list.push_back(one ? std::optional(change(*one)) : std::nullopt);
    return list;
  }
  if (to_cpu && value.isDevice() && value.toDevice().is_cuda()) {
    require_device(value.toDevice().index());
    return c10::Device(c10::DeviceType::CPU);
  }
  return value;
}

template <typename Do> void for_tensors(const IValue &value, const Do &act) {
  changed(value, false, [&](const Tensor &tensor) {
    if (tensor.defined() && tensor.is_cuda())
      act(tensor);
    return tensor;
  });
}

void run_on_cpu(const c10::OperatorHandle &op, DispatchKeySet, Stack *stack) {
  const c10::FunctionSchema &schema = op.schema();
  const std::string name =
      schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  TORCH_CHECK_NOT_IMPLEMENTED(schema.name().rfind("aten::", 0) == 0, "Could not run '", name,
                              "' with arguments from the 'CUDA' backend: it has no kernel for CUDA.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !starts_with_any(name, kMissing), name,
      " is not emulated: it belongs to a library of NVIDIA's that runs on GPUs only. Use "
      "the composite operation of torch, or write the kernel in CUDA.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), name,
      " is not emulated: torch has it for GPUs alone. Use other operations of torch in "
      "its place, or run this part on the CPU.");
  check_earlier_work();
  StandIns stand_ins(name);
  const std::size_t count = schema.arguments().size(), first = stack->size() - count;
  std::vector<IValue> originals(stack->begin() + std::ptrdiff_t(first), stack->end());
  std::vector<bool> written(count);
  for (std::size_t i = 0; i < count; ++i) {
    const c10::AliasInfo *const alias = schema.arguments()[i].alias_info();
    written[i] = alias && alias->isWrite();
    IValue &argument = (*stack)[first + i];
    argument = changed(argument, true, [&](const Tensor &tensor) { return stand_ins.on_cpu(tensor); });
  }
  stand_ins.require_one_device();
  const bool makes_view =
      std::any_of(schema.returns().begin(), schema.returns().end(),
                  [](const c10::Argument &one) { return one.alias_info() && !one.alias_info()->isWrite(); });
  for (std::size_t i = 0; i < count; ++i)
    if (!written[i] && !makes_view)
      for_tensors(originals[i], [](const Tensor &tensor) { note_use(tensor, false); });
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.callBoxed(stack);
  }
  stand_ins.settle();
  for (std::size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    (*stack)[i] =
        changed((*stack)[i], false, [&](const Tensor &tensor) { return stand_ins.on_device(tensor); });
  for (std::size_t i = 0; i < count; ++i)
    if (written[i])
      for_tensors(originals[i], [](const Tensor &tensor) { note_use(tensor, true); });
}

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
             std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "sparse tensors are not emulated on cuda");
  if (device)
    require_device(device->index());
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), c10::GetAllocator(c10::DeviceType::CUDA),
                                   kDeviceKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  if (device)
    require_device(device->index());
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           c10::GetAllocator(c10::DeviceType::CUDA), kDeviceKeys,
                                           c10::dtype_or_default(dtype));
}

/// Plain copies go through cudaMemcpy, which the sanitizer watches.
Tensor &copy(const c10::OperatorHandle &op, DispatchKeySet keys, Tensor &to, const Tensor &from,
             bool waits_not) {
  const bool is_plain = to.dtype() == from.dtype() && to.sizes() == from.sizes() && to.is_contiguous() &&
                        from.is_contiguous() && to.is_conj() == from.is_conj() &&
                        to.is_neg() == from.is_neg();
  check_earlier_work();
  if (is_plain && !to.is_same(from)) {
    if (to.numel())
      check(cudaMemcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.numel() * to.element_size(),
                       !from.is_cuda() ? cudaMemcpyHostToDevice
                       : to.is_cuda()  ? cudaMemcpyDeviceToDevice
                                       : cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    return to;
  }
  Stack stack{to, from, waits_not};
  run_on_cpu(op, keys, &stack);
  return to;
}

void copy_boxed(const c10::OperatorHandle &op, DispatchKeySet keys, Stack *stack) {
  const std::size_t first = stack->size() - 3;
  Tensor to = (*stack)[first].toTensor();
  copy(op, keys, to, (*stack)[first + 1].toTensor(), (*stack)[first + 2].toBool());
  stack->resize(first);
  stack->emplace_back(to);
}

/// A CTC loss is computed without a library for GPUs.
void choose_no_library(const c10::OperatorHandle &op, DispatchKeySet, Stack *stack) {
  stack->resize(stack->size() - op.schema().arguments().size());
  stack->emplace_back(false);
}

/// Of the ways to compute scaled_dot_product_attention, the one that is made of other operations.
void choose_plain_attention(const c10::OperatorHandle &op, DispatchKeySet, Stack *stack) {
  constexpr std::int64_t kMath = 0; // sdp::SDPBackend::math
  stack->resize(stack->size() - op.schema().arguments().size());
  stack->emplace_back(kMath);
}

/// Work is complete when a call returns, so memory is never freed too early.
void record_stream(Tensor &, c10::Stream) {}

Tensor &set_storage(Tensor &self, c10::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                    c10::SymIntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size),
                                                    C10_AS_INTARRAYREF_SLOW(stride), offset.expect_int());
  return self;
}

Tensor &set_whole_storage(Tensor &self, c10::Storage source) {
  const auto elements = std::int64_t(source.nbytes() / self.element_size());
  const c10::SymInt size(elements), stride(1);
  return set_storage(self, std::move(source), 0, size, stride);
}

} // namespace

} // namespace ladder::torch_device

using namespace ladder::torch_device;

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(ladder::torch_device::empty));
  library.impl("empty_strided", TORCH_FN(ladder::torch_device::empty_strided));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  library.impl("record_stream", TORCH_FN(ladder::torch_device::record_stream));
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&copy_boxed>());
  // Composites that choose a kernel by device, and for CUDA one that is missing.
  library.impl("_fused_sdp_choice", torch::CppFunction::makeFromBoxedFunction<&choose_plain_attention>());
  for (const char *name : {"_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss",
                           "_use_miopen_ctc_loss.Tensor"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&choose_no_library>());
  for (const char *name : {"convolution", "convolution_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}
