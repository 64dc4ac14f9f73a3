// The program's launches, and its queries about kernels.
#include "binary_image.h"
#include "host_program.h"
#include "runtime/work/registration.h"

#include <algorithm>
#include <cstring>

namespace fuzz {

namespace {

constexpr int kSharedBytes = 32 << 10; ///< the default limit of kernels
constexpr std::size_t kFewBlocks = 8;

bool is_grid(const dim3 &size) {
  return size.x >= 1 && size.x <= 0x7fffffffu && size.y >= 1 && size.y <= 65535 && size.z >= 1 &&
         size.z <= 65535;
}

bool is_block(const dim3 &size, std::uint64_t most) {
  return size.x >= 1 && size.x <= 1024 && size.y >= 1 && size.y <= 1024 && size.z >= 1 && size.z <= 64 &&
         std::uint64_t(size.x) * size.y * size.z <= most;
}

/// A stream callback, which may make calls itself.
void call_back(void *count) {
  ++*static_cast<int *>(count);
  cudaStreamQuery(nullptr);
}

void call_back_with_stream(cudaStream_t stream, cudaError_t, void *count) {
  ++*static_cast<int *>(count);
  cudaStreamQuery(stream);
}

} // namespace

void HostProgram::permit_shared() {
  for (int kernel = 0; kernel < Device::missing; ++kernel)
    expect("cudaFuncSetAttribute",
           cudaFuncSetAttribute(&device_.functions[kernel], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kSharedBytes),
           true);
}

dim3 HostProgram::size_of_grid(bool is_harmless) {
  dim3 size(unsigned(1 + random_.below(3)), unsigned(1 + random_.below(2)), 1);
  if (random_.one_in(8))
    (random_.one_in(2) ? size.x : random_.one_in(2) ? size.y : size.z) = unsigned(random_.integer());
  if (is_grid(size) && std::uint64_t(size.x) * size.y * size.z > kFewBlocks && !is_harmless)
    size = dim3(1);
  return size;
}

dim3 HostProgram::size_of_block() {
  dim3 size(unsigned(1 + random_.below(random_.one_in(20) ? 1024 : 40)));
  if (random_.one_in(8))
    (random_.one_in(2) ? size.x : random_.one_in(2) ? size.y : size.z) = unsigned(random_.integer());
  return size;
}

void HostProgram::launch() {
  int kernel = int(random_.below(Device::kernels));
  // The first block's fault ends the launch, however many blocks there are, unless the sanitizer records
  // faults.
  const bool ends_at_once = kernel == Device::stop && !rules_.is_checked;
  const dim3 grid = size_of_grid(ends_at_once), block = size_of_block();
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  std::size_t shared = random_.one_in(2) ? 0 : random_.size(kSharedBytes);
  const Place to = place(Side::device, sink_, sink_mirror_);
  unsigned count = unsigned(random_.one_in(3) ? random_.integer() : int(random_.below(to.room + 1)));
  const unsigned value = unsigned(random_.below(256));
  std::uint64_t heap_bytes = random_.size(5000);

  bool is_faulty = kernel == Device::stop || kernel == Device::spin;
  if (kernel == Device::fill) {
    const std::uint64_t reach = std::min<std::uint64_t>(
        count, is_grid(grid) && is_block(block, 1024) ? grid.x * std::uint64_t(block.x) : 0);
    is_faulty = reach > 0 && !(to.block && reach <= to.room);
  }
  if (kernel == Device::tile)
    is_faulty = shared < 4 * (std::uint64_t(block.x) + 1);
  if (is_faulty && !rules_.may_break)
    return;

  int limit = kSharedBytes;
  if (rules_.is_alone && kernel != Device::missing) {
    cudaFuncAttributes attributes{};
    expect("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, &device_.functions[kernel]), true);
    limit = attributes.maxDynamicSharedSizeBytes;
  }
  const void *function = &device_.functions[kernel];
  bool is_function = kernel != Device::missing, is_stream = true;
  if (random_.one_in(30)) {
    function = random_.one_in(2) ? nullptr : random_.wild_pointer();
    is_function = false;
  }
  const cudaStream_t on = stream(&is_stream);
  void *fill_arguments[] = {const_cast<char **>(&to.pointer), &count, const_cast<unsigned *>(&value)};
  void *heap_arguments[] = {&heap_bytes};
  void **arguments = kernel == Device::fill   ? fill_arguments
                     : kernel == Device::heap ? heap_arguments
                                              : nullptr;
  bool has_arguments = true;
  if (arguments && random_.one_in(30)) {
    has_arguments = false;
    if (random_.one_in(2))
      arguments = nullptr;
    else
      arguments[0] = nullptr;
  }

  cudaError_t code;
  bool is_attribute = true;
  switch (random_.below(4)) {
  case 0:
    code = cudaLaunchCooperativeKernel(function, grid, block, arguments, shared, on);
    break;
  case 1: {
    cudaLaunchAttribute attribute{};
    attribute.id = random_.one_in(2) ? cudaLaunchAttributeCooperative : cudaLaunchAttributeClusterDimension;
    if (attribute.id == cudaLaunchAttributeCooperative) {
      attribute.val.cooperative = random_.integer();
    } else {
      attribute.val.clusterDim.x = unsigned(random_.integer());
      attribute.val.clusterDim.y = attribute.val.clusterDim.x;
      attribute.val.clusterDim.z = 1;
      is_attribute = attribute.val.clusterDim.x == 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = on;
    config.attrs = random_.one_in(10) ? nullptr : &attribute;
    config.numAttrs = 1;
    is_attribute = is_attribute && config.attrs;
    const bool has_config = !random_.one_in(30);
    is_attribute = is_attribute && has_config;
    code = cudaLaunchKernelExC(has_config ? &config : nullptr, function, arguments);
    break;
  }
  case 2: { // as <<<>>> does it
    dim3 popped_grid, popped_block;
    std::size_t popped_shared = 0;
    cudaStream_t popped_stream = nullptr;
    __cudaPushCallConfiguration(grid, block, shared, on);
    call("__cudaPopCallConfiguration",
         __cudaPopCallConfiguration(&popped_grid, &popped_block, &popped_shared, &popped_stream));
    cudaKernel_t handle = nullptr;
    const cudaError_t found = __cudaGetKernel(&handle, function);
    if (!is_broken_)
      expect("__cudaGetKernel", found, function == &device_.functions[kernel]);
    code =
        found == cudaSuccess
            ? __cudaLaunchKernel(handle, popped_grid, popped_block, arguments, popped_shared, popped_stream)
            : cudaLaunchKernel(function, popped_grid, popped_block, arguments, popped_shared, popped_stream);
    break;
  }
  default:
    code = cudaLaunchKernel(function, grid, block, arguments, shared, on);
  }
  const bool is_good = is_function && is_stream && has_arguments && is_attribute && is_grid(grid) &&
                       is_block(block, kernel == Device::narrow ? 32 : 1024) && shared <= std::size_t(limit);
  // A launch succeeds though its kernel faults: the fault is an error of the calls after it.
  if (is_faulty && code == cudaSuccess)
    code = cudaDeviceSynchronize();
  // A cooperative grid of few blocks fits, unless each takes a multiprocessor's whole shared memory.
  call("a launch", code, !is_good || !is_faulty, is_good);
  (void)threads;
  if (!is_exact() || code != cudaSuccess)
    return;
  if (is_faulty) {
    for (Block &one : blocks_)
      refresh(one);
  } else if (kernel == Device::fill) {
    const std::uint64_t reach = std::min<std::uint64_t>(count, grid.x * std::uint64_t(block.x));
    if (reach)
      std::memset(to.mirror, int(value), reach);
  } else if (kernel == Device::variables && rules_.is_alone) {
    std::copy_n(table_.begin() + 4, 4, words_.end() - 4);
    std::copy_n(table_.begin() + 4, 4, shared_by_both_.begin());
  }
}

void HostProgram::attributes() {
  const int kernel = int(random_.below(Device::kernels));
  const void *const function = random_.one_in(10) ? random_.wild_pointer() : &device_.functions[kernel];
  cudaFuncAttributes attributes{};
  call("cudaFuncGetAttributes", cudaFuncGetAttributes(random_.one_in(10) ? nullptr : &attributes, function));
  const char *name = nullptr;
  call("cudaFuncGetName", cudaFuncGetName(&name, function));
  call("cudaFuncSetCacheConfig", cudaFuncSetCacheConfig(function, random_.enumerator<cudaFuncCache>(4)));
  call("cudaFuncSetSharedMemConfig",
       cudaFuncSetSharedMemConfig(function, random_.enumerator<cudaSharedMemConfig>(3)));
  if (rules_.is_alone)
    call("cudaFuncSetAttribute",
         cudaFuncSetAttribute(function, random_.enumerator<cudaFuncAttribute>(16),
                              random_.one_in(2) ? random_.integer() : int(random_.below(200 << 10))));
}

void HostProgram::occupancy() {
  const void *const function = &device_.functions[random_.below(Device::kernels)];
  const int threads = random_.integer();
  const std::size_t shared = random_.size(100 << 10);
  int blocks = 0;
  const cudaError_t code =
      random_.one_in(2) ? cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared)
                        : cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                              &blocks, function, threads, shared, unsigned(random_.integer()));
  call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", code);
  if (code == cudaSuccess &&
      (blocks < 0 || blocks > 32 || (blocks && (threads > 1024 || shared > 164 << 10))))
    fail("an occupancy that there cannot be");
  std::size_t bytes = 0;
  const cudaError_t available =
      cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, function, random_.integer(), random_.integer());
  call("cudaOccupancyAvailableDynamicSMemPerBlock", available);
  if (available == cudaSuccess && bytes > 164 << 10)
    fail("more shared memory than there is");
}

void HostProgram::host_function() {
  int count = 0;
  bool is_stream = true;
  const cudaStream_t on = stream(&is_stream);
  if (random_.one_in(2)) {
    const bool has_function = !random_.one_in(6);
    expect("cudaLaunchHostFunc", cudaLaunchHostFunc(on, has_function ? call_back : nullptr, &count),
           is_stream && has_function);
  } else {
    const unsigned flags = random_.one_in(3) ? unsigned(random_.integer()) : 0;
    expect("cudaStreamAddCallback", cudaStreamAddCallback(on, call_back_with_stream, &count, flags),
           is_stream && flags == 0);
  }
}

/// Registers a fat binary, perhaps a broken one, uses it, unregisters it and uses it again.
void HostProgram::own_binary() {
  using Damage = BinaryImage::Damage;
  const auto damage = Damage(random_.one_in(2) ? 0 : random_.below(8));
  BinaryImage image(*device_.ptx, damage);
  char function = 0, variable = 0;
  void **const handle = __cudaRegisterFatBinary(image.wrapper());
  __cudaRegisterFunction(handle, &function, nullptr, random_.one_in(9) ? "none" : "variables", -1, nullptr,
                         nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterVar(handle, &variable, nullptr, "words", 0, 256, 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
  for (int times = 0; times < 2; ++times) {
    cudaFuncAttributes attributes{};
    call("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, &function));
    call("cudaMemcpyToSymbol", cudaMemcpyToSymbol(&variable, source_.data(), 256, 0, cudaMemcpyHostToDevice),
         damage != Damage::text, damage == Damage::none);
    call("cudaLaunchKernel", cudaLaunchKernel(&function, dim3(1), dim3(32), nullptr, 0, nullptr));
  }
  __cudaUnregisterFatBinary(handle);
  expect("cudaLaunchKernel", cudaLaunchKernel(&function, dim3(1), dim3(32), nullptr, 0, nullptr), false);
  expect("cudaGetSymbolSize", cudaGetSymbolSize(reinterpret_cast<std::size_t *>(sink_.data()), &variable),
         false);
}

} // namespace fuzz
