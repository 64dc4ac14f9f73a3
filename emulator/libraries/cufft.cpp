// cuFFT: plans, and their execution in double precision with one rounding at the end.
#include "libraries/fourier.h"
#include "libraries/operands.h"

#include "runtime/work/cuda_api.h"

#pragma GCC visibility push(default)
#include <cufft.h>
#pragma GCC visibility pop

#include <functional>
#include <map>
#include <memory>
#include <optional>

using namespace ladder::libraries;

namespace {

/// How one side of a transform is in memory: index (i0, i1, ...) of an array at (i0 * embed[1] + i1) *
/// embed[2] ...
struct Layout {
  std::vector<std::int64_t> embed;
  std::int64_t stride = 1, distance = 0;

  std::int64_t place(const std::vector<std::int64_t> &index) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d)
      at = at * embed[d] + index[d];
    return at * stride;
  }
};

struct Plan {
  bool is_made = false;
  cufftType type = CUFFT_C2C;
  std::vector<std::int64_t> sizes;
  std::int64_t batch = 1;
  std::optional<Layout> input, output; ///< none: the default ones
  cudaStream_t stream = nullptr;
};

struct Plans {
  std::mutex mutex;
  std::map<cufftHandle, std::shared_ptr<Plan>> live;
  cufftHandle next = 1;
};
// Never destroyed: programs destroy plans in static destructors of their own.
auto &plans = *new Plans;

cufftResult status_of(const Outcome &outcome) {
  return outcome.refused                ? cufftResult(outcome.refused)
         : outcome.error != cudaSuccess ? CUFFT_EXEC_FAILED
                                        : CUFFT_SUCCESS;
}

std::shared_ptr<Plan> find(cufftHandle handle) {
  const std::lock_guard lock(plans.mutex);
  const auto found = plans.live.find(handle);
  if (found == plans.live.end())
    throw Refusal(CUFFT_INVALID_PLAN, "the plan does not exist, or is destroyed");
  return found->second;
}

cufftResult configure(const char *name, cufftHandle handle, const std::function<void(Plan &)> &body) {
  return status_of(guarded(name, [&] { body(*find(handle)); }));
}

/// Embedding, stride and distance as a program gives them; no embedding means the default layout.
struct Given {
  const int *embed;
  int stride, distance;
};

std::optional<Layout> layout_of(const Given &given, int rank) {
  if (!given.embed)
    return std::nullopt;
  return Layout{{given.embed, given.embed + rank}, given.stride, given.distance};
}

cufftResult make(const char *name, cufftHandle handle, const std::vector<int> &sizes, cufftType type,
                 int batch, const Given &input, const Given &output, size_t *bytes) {
  return configure(name, handle, [&](Plan &plan) {
    if (sizes.empty() || sizes.size() > 3 || batch < 1)
      throw Refusal(CUFFT_INVALID_VALUE, "1 to 3 dimensions and a batch of at least 1 are possible");
    for (const int size : sizes)
      if (size < 1)
        throw Refusal(CUFFT_INVALID_SIZE, "a size is " + std::to_string(size));
    switch (type) {
    case CUFFT_R2C:
    case CUFFT_C2R:
    case CUFFT_C2C:
    case CUFFT_D2Z:
    case CUFFT_Z2D:
    case CUFFT_Z2Z:
      break;
    default:
      throw Refusal(CUFFT_INVALID_TYPE, "there is no such type of transform");
    }
    const auto rank = int(sizes.size());
    // Both sides, or none: so it is with cuFFT.
    const bool is_given = input.embed && output.embed;
    plan = {true,
            type,
            {sizes.begin(), sizes.end()},
            batch,
            is_given ? layout_of(input, rank) : std::nullopt,
            is_given ? layout_of(output, rank) : std::nullopt,
            plan.stream};
    if (bytes)
      *bytes = 0;
  });
}

constexpr Given kDefault{nullptr, 1, 0};

cufftResult create(cufftHandle *handle) {
  if (!handle)
    return CUFFT_INVALID_VALUE;
  const std::lock_guard lock(plans.mutex);
  *handle = plans.next++;
  plans.live[*handle] = std::make_shared<Plan>();
  return CUFFT_SUCCESS;
}

cufftResult create_made(const char *name, cufftHandle *handle, const std::vector<int> &sizes, cufftType type,
                        int batch, const Given &input = kDefault, const Given &output = kDefault) {
  cufftHandle made = 0;
  if (!handle)
    return CUFFT_INVALID_VALUE;
  create(&made);
  const cufftResult result = make(name, made, sizes, type, batch, input, output, nullptr);
  if (result == CUFFT_SUCCESS)
    *handle = made;
  else
    cufftDestroy(made);
  return result;
}

/// Calls f(index) for all indices of an array of these sizes, the last fastest.
template <typename F> void for_indices(const std::vector<std::int64_t> &sizes, F f) {
  std::vector<std::int64_t> index(sizes.size());
  for (;;) {
    f(index);
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1])
      index[--d] = 0;
    if (d == 0)
      return;
  }
}

std::int64_t offset(const std::vector<std::int64_t> &sizes, const std::vector<std::int64_t> &index) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    at = at * sizes[d] + index[d];
  return at;
}

/// The default layout of an array whose last dimension has room for `last`.
Layout packed(std::vector<std::int64_t> sizes, std::int64_t last) {
  sizes.back() = last;
  std::int64_t count = 1;
  for (const std::int64_t size : sizes)
    count *= size;
  return {sizes, 1, count};
}

/// The last element of a batch of arrays, and one.
std::int64_t extent(const Layout &layout, const std::vector<std::int64_t> &sizes, std::int64_t batch) {
  std::vector<std::int64_t> last;
  for (const std::int64_t size : sizes)
    last.push_back(size - 1);
  return layout.place(last) + (batch - 1) * layout.distance + 1;
}

void execute(const char *name, const Plan &plan, const void *input, void *output, cudaDataType from,
             cudaDataType to, int direction) {
  // Of a transform of real numbers, half the spectrum is stored: the rest is its conjugate.
  const std::vector<std::int64_t> &sizes = plan.sizes;
  const std::int64_t half = sizes.back() / 2 + 1;
  const bool from_real = !is_complex(from), to_real = !is_complex(to);
  std::vector<std::int64_t> input_sizes = sizes, output_sizes = sizes;
  if (from_real)
    output_sizes.back() = half;
  if (to_real)
    input_sizes.back() = half;
  // In place, rows of real numbers have room for the spectrum.
  const std::int64_t real_row = input == output ? 2 * half : sizes.back();
  const Layout in = plan.input.value_or(packed(input_sizes, from_real ? real_row : input_sizes.back()));
  const Layout out = plan.output.value_or(packed(output_sizes, to_real ? real_row : output_sizes.back()));
  const std::int64_t read = extent(in, input_sizes, plan.batch),
                     written = extent(out, output_sizes, plan.batch);
  Operands operands(name);
  // Between rows there may be room that nothing uses.
  operands.matrix("the input", from, input, read, 1, read, Operands::Access::read);
  operands.matrix("the output", to, output, written, 1, written, Operands::Access::write);
  operands.begin();
  std::int64_t count = 1;
  for (const std::int64_t size : sizes)
    count *= size;
  std::vector<Complex> values(static_cast<std::size_t>(count));
  for (std::int64_t b = 0; b < plan.batch; ++b) {
    for_indices(input_sizes, [&](const std::vector<std::int64_t> &index) {
      values[std::size_t(offset(sizes, index))] = load(from, input, in.place(index) + b * in.distance);
    });
    if (to_real)
      for_indices(sizes, [&](const std::vector<std::int64_t> &index) {
        if (index.back() < half)
          return;
        std::vector<std::int64_t> mirrored;
        for (std::size_t d = 0; d < sizes.size(); ++d)
          mirrored.push_back((sizes[d] - index[d]) % sizes[d]);
        values[std::size_t(offset(sizes, index))] = std::conj(values[std::size_t(offset(sizes, mirrored))]);
      });
    transform(sizes, values, direction);
    for_indices(output_sizes, [&](const std::vector<std::int64_t> &index) {
      store(to, output, out.place(index) + b * out.distance, values[std::size_t(offset(sizes, index))]);
    });
  }
}

cufftResult run(const char *name, cufftHandle handle, cufftType type, const void *input, void *output,
                cudaDataType from, cudaDataType to, int direction) {
  return status_of(guarded(name, [&] {
    const std::shared_ptr<Plan> plan = find(handle);
    if (!plan->is_made || plan->type != type)
      throw Refusal(CUFFT_INVALID_PLAN, "the plan is made for another type of transform");
    if (direction != CUFFT_FORWARD && direction != CUFFT_INVERSE)
      throw Refusal(CUFFT_INVALID_VALUE, "the direction is neither CUFFT_FORWARD nor CUFFT_INVERSE");
    run_on(name, plan->stream, [&] { execute(name, *plan, input, output, from, to, direction); });
  }));
}

} // namespace

cufftResult cufftCreate(cufftHandle *plan) { return create(plan); }

cufftResult cufftDestroy(cufftHandle plan) {
  return status_of(guarded("cufftDestroy", [&] {
    find(plan);
    const std::lock_guard lock(plans.mutex);
    plans.live.erase(plan);
  }));
}

cufftResult cufftPlan1d(cufftHandle *plan, int nx, cufftType type, int batch) {
  return create_made("cufftPlan1d", plan, {nx}, type, batch);
}

cufftResult cufftPlan2d(cufftHandle *plan, int nx, int ny, cufftType type) {
  return create_made("cufftPlan2d", plan, {nx, ny}, type, 1);
}

cufftResult cufftPlan3d(cufftHandle *plan, int nx, int ny, int nz, cufftType type) {
  return create_made("cufftPlan3d", plan, {nx, ny, nz}, type, 1);
}

cufftResult cufftPlanMany(cufftHandle *plan, int rank, int *n, int *inembed, int istride, int idist,
                          int *onembed, int ostride, int odist, cufftType type, int batch) {
  if (!n || rank < 1)
    return CUFFT_INVALID_VALUE;
  return create_made("cufftPlanMany", plan, {n, n + rank}, type, batch, {inembed, istride, idist},
                     {onembed, ostride, odist});
}

cufftResult cufftMakePlan1d(cufftHandle plan, int nx, cufftType type, int batch, size_t *bytes) {
  return make("cufftMakePlan1d", plan, {nx}, type, batch, kDefault, kDefault, bytes);
}

cufftResult cufftMakePlan2d(cufftHandle plan, int nx, int ny, cufftType type, size_t *bytes) {
  return make("cufftMakePlan2d", plan, {nx, ny}, type, 1, kDefault, kDefault, bytes);
}

cufftResult cufftMakePlan3d(cufftHandle plan, int nx, int ny, int nz, cufftType type, size_t *bytes) {
  return make("cufftMakePlan3d", plan, {nx, ny, nz}, type, 1, kDefault, kDefault, bytes);
}

cufftResult cufftMakePlanMany(cufftHandle plan, int rank, int *n, int *inembed, int istride, int idist,
                              int *onembed, int ostride, int odist, cufftType type, int batch,
                              size_t *bytes) {
  if (!n || rank < 1)
    return CUFFT_INVALID_VALUE;
  return make("cufftMakePlanMany", plan, {n, n + rank}, type, batch, {inembed, istride, idist},
              {onembed, ostride, odist}, bytes);
}

cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) {
  return configure("cufftSetStream", plan, [&](Plan &one) { one.stream = stream; });
}

cufftResult cufftSetAutoAllocation(cufftHandle plan, int) {
  return configure("cufftSetAutoAllocation", plan, [](Plan &) {});
}

cufftResult cufftSetWorkArea(cufftHandle plan, void *) {
  return configure("cufftSetWorkArea", plan, [](Plan &) {});
}

cufftResult cufftGetSize(cufftHandle plan, size_t *bytes) {
  return configure("cufftGetSize", plan, [&](Plan &) { *bytes = 0; });
}

cufftResult cufftGetVersion(int *version) {
  *version = CUFFT_VERSION;
  return CUFFT_SUCCESS;
}

cufftResult cufftExecC2C(cufftHandle plan, cufftComplex *input, cufftComplex *output, int direction) {
  return run("cufftExecC2C", plan, CUFFT_C2C, input, output, CUDA_C_32F, CUDA_C_32F, direction);
}

cufftResult cufftExecR2C(cufftHandle plan, cufftReal *input, cufftComplex *output) {
  return run("cufftExecR2C", plan, CUFFT_R2C, input, output, CUDA_R_32F, CUDA_C_32F, CUFFT_FORWARD);
}

cufftResult cufftExecC2R(cufftHandle plan, cufftComplex *input, cufftReal *output) {
  return run("cufftExecC2R", plan, CUFFT_C2R, input, output, CUDA_C_32F, CUDA_R_32F, CUFFT_INVERSE);
}

cufftResult cufftExecZ2Z(cufftHandle plan, cufftDoubleComplex *input, cufftDoubleComplex *output,
                         int direction) {
  return run("cufftExecZ2Z", plan, CUFFT_Z2Z, input, output, CUDA_C_64F, CUDA_C_64F, direction);
}

cufftResult cufftExecD2Z(cufftHandle plan, cufftDoubleReal *input, cufftDoubleComplex *output) {
  return run("cufftExecD2Z", plan, CUFFT_D2Z, input, output, CUDA_R_64F, CUDA_C_64F, CUFFT_FORWARD);
}

cufftResult cufftExecZ2D(cufftHandle plan, cufftDoubleComplex *input, cufftDoubleReal *output) {
  return run("cufftExecZ2D", plan, CUFFT_Z2D, input, output, CUDA_C_64F, CUDA_R_64F, CUFFT_INVERSE);
}
