#include "libraries/cublas_call.h"

#include "runtime/observe/checking.h"
#include "runtime/work/allocations.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

namespace ladder::libraries {

using runtime::Checking;
using runtime::Device;

namespace {

auto &handles = *new Handles<cublasContext>;

cublasContext &find(cublasHandle_t handle) {
  if (!handles.has(handle))
    throw Refusal(CUBLAS_STATUS_NOT_INITIALIZED,
                  "the handle is none that cublasCreate returned, or it is destroyed");
  return *handle;
}

cublasStatus_t status_of(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return CUBLAS_STATUS_SUCCESS;
  case cudaErrorMemoryAllocation:
    return CUBLAS_STATUS_ALLOC_FAILED;
  default:
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

cublasStatus_t status_of(const Outcome &outcome) {
  return outcome.refused ? cublasStatus_t(outcome.refused) : status_of(outcome.error);
}

bool is_device_memory(const void *data) {
  const auto allocation = runtime::Allocations::instance().find(data);
  return allocation && allocation->kind == runtime::MemoryKind::device;
}

} // namespace

Vector Call::vector(const char *operand, cudaDataType type, const void *data, std::int64_t n,
                    std::int64_t increment, Access access) {
  const std::int64_t step = std::abs(increment);
  if (step == 1)
    matrix(operand, type, data, n, 1, n, access);
  else
    matrix(operand, type, data, n > 0, n, step, access);
  return {type, const_cast<void *>(data), n, increment};
}

void Call::check_scalar(const char *operand, cudaDataType type, const void *data) const {
  require_value(data, std::string(operand) + " is null");
  const bool is_known =
      Device::instance().memory().find(reinterpret_cast<std::uint64_t>(data), bytes_of(type)) != nullptr;
  if (handle_.pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
    require_value(is_known, std::string(operand) + " is host memory, but the pointer mode says device");
  else
    require_value(!is_device_memory(data),
                  std::string(operand) +
                      " is device memory, but the pointer mode says host (cublasSetPointerMode)");
}

Complex Call::scalar(const char *operand, cudaDataType type, const void *data) {
  check_scalar(operand, type, data);
  if (handle_.pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
    matrix(operand, type, data, 1, 1, 1, Access::read);
  return load(type, data, 0);
}

void Call::result(cudaDataType type, void *data, Complex value) {
  check_scalar("the result", type, data);
  if (handle_.pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
    matrix("the result", type, data, 1, 1, 1, Access::write);
  begin();
  store(type, data, 0, value);
  // A result in host memory is there when the call returns.
  if (Checking *const checking = Checking::active();
      checking && handle_.pointer_mode == CUBLAS_POINTER_MODE_HOST)
    checking->streams().host_waits(runtime::stream_id(handle_.stream));
}

cublasStatus_t run(const char *name, cublasHandle_t handle, const std::function<void(Call &)> &body) {
  return status_of(guarded(name, [&] {
    cublasContext &context = find(handle);
    run_on(name, context.stream, [&] {
      Call call(name, context);
      body(call);
    });
  }));
}

cublasStatus_t configure(const char *name, cublasHandle_t handle,
                         const std::function<void(cublasContext &)> &body) {
  return status_of(guarded(name, [&] { body(find(handle)); }));
}

namespace {

cublasStatus_t create(cublasHandle_t *handle) {
  return status_of(guarded("cublasCreate", [&] {
    require_value(handle, "handle is null");
    *handle = new cublasContext;
    handles.add(*handle);
  }));
}

cublasStatus_t destroy(cublasHandle_t handle) {
  return status_of(guarded("cublasDestroy", [&] { handles.remove(&find(handle)); }));
}

} // namespace

} // namespace ladder::libraries

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) { return ladder::libraries::create(handle); }

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return ladder::libraries::destroy(handle); }
