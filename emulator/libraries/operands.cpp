#include "libraries/operands.h"

#include "runtime/observe/checking.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

namespace ladder::libraries {

using runtime::Checking;
using runtime::Device;

void Operands::matrix(const char *operand, cudaDataType type, const void *data, std::int64_t rows,
                      std::int64_t columns, std::int64_t ld, Access access) {
  if (rows <= 0 || columns <= 0)
    return;
  const auto size = std::uint64_t(bytes_of(type));
  const std::uint64_t bytes = (std::uint64_t(columns - 1) * std::uint64_t(ld) + std::uint64_t(rows)) * size;
  const auto begin = reinterpret_cast<std::uint64_t>(data);
  if (!Device::instance().memory().find(begin, bytes))
    throw runtime::CudaError(cudaErrorInvalidValue,
                             name_ + ": " + operand + " is " + std::to_string(bytes) +
                                 " bytes that are not all device memory, " +
                                 Device::instance().memory().describe(begin),
                             sanitizer::Kind::bad_copy);
  if (!Checking::active())
    return;
  const bool is_dense = ld == rows;
  for (std::int64_t column = 0; column < (is_dense ? 1 : columns); ++column) {
    const std::uint64_t first = begin + std::uint64_t(column) * std::uint64_t(ld) * size;
    const std::uint64_t count = is_dense ? bytes : std::uint64_t(rows) * size;
    if (access != Access::write && !unwritten_.contains(operand) &&
        Checking::active()->library_reads(name_ + " of " + operand, first, count))
      unwritten_.insert(operand); // not once more for each column and each batch
    uses_.push_back({first, first + count, access != Access::read});
  }
}

void Operands::begin() {
  Checking *const checking = Checking::active();
  if (!checking)
    return;
  for (const runtime::MemoryUse &use : uses_)
    if (use.writes)
      checking->initialised().mark(use.begin, use.end - use.begin);
  checking->worked(name_, std::move(uses_));
  uses_.clear();
}

Outcome guarded(const char *name, const std::function<void()> &body) {
  Outcome outcome;
  const auto guard = [&] {
    try {
      body();
    } catch (const Refusal &refusal) {
      outcome.refused = refusal.status;
      Device::instance().complain(std::string(name) + ": " + refusal.what());
    }
  };
  outcome.error = runtime::on_device(guard, name);
  return outcome;
}

void run_on(const char *name, cudaStream_t stream, const std::function<void()> &body) {
  const runtime::StreamId id = runtime::stream_id(stream);
  runtime::refuse_captured(id);
  runtime::PendingWork::instance().wait_for(stream);
  const runtime::OnStream on_stream(id);
  const auto used = Device::instance().use_memory();
  if (Checking *const checking = Checking::active())
    checking->find_host_writes();
  body();
  Device::instance().note_uncounted(name);
}

} // namespace ladder::libraries
