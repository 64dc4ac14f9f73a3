// cuRAND's host functions. The numbers are those of one generator, whatever the type; they are not cuRAND's.
#include "libraries/operands.h"

#include "runtime/work/cuda_api.h"

#pragma GCC visibility push(default)
#include <curand.h>
#pragma GCC visibility pop

#include <cmath>
#include <numbers>
#include <random>

using namespace ladder::libraries;

struct curandGenerator_st {
  bool is_on_host = false;
  cudaStream_t stream = nullptr;
  unsigned long long seed = 0, offset = 0;
  std::mt19937_64 engine{0};

  void restart() {
    engine.seed(seed);
    engine.discard(offset);
  }
  /// In (0, 1], as cuRAND's uniform numbers.
  double uniform() { return double((engine() >> 11) + 1) * 0x1p-53; }
  double normal() {
    const double length = std::sqrt(-2 * std::log(uniform()));
    return length * std::cos(2 * std::numbers::pi * uniform());
  }
};

namespace {

auto &generators = *new Handles<curandGenerator_st>;

curandStatus_t status_of(const Outcome &outcome) {
  return outcome.refused                ? curandStatus_t(outcome.refused)
         : outcome.error != cudaSuccess ? CURAND_STATUS_LAUNCH_FAILURE
                                        : CURAND_STATUS_SUCCESS;
}

curandGenerator_st &find(curandGenerator_t generator) {
  if (!generators.has(generator))
    throw Refusal(CURAND_STATUS_NOT_INITIALIZED,
                  "the generator is none that curandCreateGenerator returned, or it is destroyed");
  return *generator;
}

curandStatus_t create(const char *name, curandGenerator_t *generator, curandRngType_t type, bool is_on_host) {
  return status_of(guarded(name, [&] {
    if (!generator)
      throw Refusal(CURAND_STATUS_OUT_OF_RANGE, "generator is null");
    if (type >= CURAND_RNG_QUASI_DEFAULT)
      throw Refusal(CURAND_STATUS_TYPE_ERROR, "quasirandom numbers are not emulated; pseudorandom ones are");
    *generator = new curandGenerator_st;
    (*generator)->is_on_host = is_on_host;
    generators.add(*generator);
  }));
}

curandStatus_t configure(const char *name, curandGenerator_t generator,
                         const std::function<void(curandGenerator_st &)> &body) {
  return status_of(guarded(name, [&] { body(find(generator)); }));
}

/// Writes `count` numbers.
template <typename T, typename Make>
curandStatus_t generate(const char *name, curandGenerator_t generator, cudaDataType type, T *output,
                        std::size_t count, Make make) {
  return status_of(guarded(name, [&] {
    curandGenerator_st &found = find(generator);
    run_on(name, found.stream, [&] {
      if (!found.is_on_host) {
        Operands operands(name);
        operands.matrix("the output", type, output, std::int64_t(count), 1, std::int64_t(count),
                        Operands::Access::write);
        operands.begin();
      }
      for (std::size_t i = 0; i < count; ++i)
        output[i] = T(make(found));
    });
  }));
}

/// Numbers that cuRAND makes in pairs.
void require_even(std::size_t count) {
  if (count % 2)
    throw Refusal(CURAND_STATUS_LENGTH_NOT_MULTIPLE, "normal numbers come in pairs: the count must be even");
}

template <typename T, typename Make>
curandStatus_t generate_pairs(const char *name, curandGenerator_t generator, cudaDataType type, T *output,
                              std::size_t count, Make make) {
  const curandStatus_t status = status_of(guarded(name, [&] { require_even(count); }));
  return status == CURAND_STATUS_SUCCESS ? generate(name, generator, type, output, count, make) : status;
}

} // namespace

curandStatus_t curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type) {
  return create("curandCreateGenerator", generator, type, false);
}

curandStatus_t curandCreateGeneratorHost(curandGenerator_t *generator, curandRngType_t type) {
  return create("curandCreateGeneratorHost", generator, type, true);
}

curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  return status_of(guarded("curandDestroyGenerator", [&] { generators.remove(&find(generator)); }));
}

curandStatus_t curandGetVersion(int *version) {
  if (!version)
    return CURAND_STATUS_OUT_OF_RANGE;
  constexpr int kVersion = 100400;
  *version = kVersion;
  return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
  return configure("curandSetStream", generator, [&](curandGenerator_st &one) { one.stream = stream; });
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
  return configure("curandSetPseudoRandomGeneratorSeed", generator, [&](curandGenerator_st &one) {
    one.seed = seed;
    one.restart();
  });
}

curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
  return configure("curandSetGeneratorOffset", generator, [&](curandGenerator_st &one) {
    one.offset = offset;
    one.restart();
  });
}

curandStatus_t curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t) {
  return configure("curandSetGeneratorOrdering", generator, [](curandGenerator_st &) {});
}

curandStatus_t curandGenerateSeeds(curandGenerator_t generator) {
  return configure("curandGenerateSeeds", generator, [](curandGenerator_st &) {});
}

curandStatus_t curandGenerate(curandGenerator_t generator, unsigned *output, size_t count) {
  return generate("curandGenerate", generator, CUDA_R_32I, output, count,
                  [](curandGenerator_st &one) { return one.engine() >> 32; });
}

curandStatus_t curandGenerateUniform(curandGenerator_t generator, float *output, size_t count) {
  return generate("curandGenerateUniform", generator, CUDA_R_32F, output, count,
                  [](curandGenerator_st &one) { return float((one.engine() >> 40) + 1) * 0x1p-24f; });
}

curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double *output, size_t count) {
  return generate("curandGenerateUniformDouble", generator, CUDA_R_64F, output, count,
                  [](curandGenerator_st &one) { return one.uniform(); });
}

curandStatus_t curandGenerateNormal(curandGenerator_t generator, float *output, size_t count, float mean,
                                    float stddev) {
  return generate_pairs("curandGenerateNormal", generator, CUDA_R_32F, output, count,
                        [=](curandGenerator_st &one) { return mean + stddev * one.normal(); });
}

curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double *output, size_t count,
                                          double mean, double stddev) {
  return generate_pairs("curandGenerateNormalDouble", generator, CUDA_R_64F, output, count,
                        [=](curandGenerator_st &one) { return mean + stddev * one.normal(); });
}

curandStatus_t curandGenerateLogNormal(curandGenerator_t generator, float *output, size_t count, float mean,
                                       float stddev) {
  return generate_pairs("curandGenerateLogNormal", generator, CUDA_R_32F, output, count,
                        [=](curandGenerator_st &one) { return std::exp(mean + stddev * one.normal()); });
}

curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t generator, double *output, size_t count,
                                             double mean, double stddev) {
  return generate_pairs("curandGenerateLogNormalDouble", generator, CUDA_R_64F, output, count,
                        [=](curandGenerator_st &one) { return std::exp(mean + stddev * one.normal()); });
}

curandStatus_t curandGeneratePoisson(curandGenerator_t generator, unsigned *output, size_t count,
                                     double lambda) {
  std::poisson_distribution<unsigned> distribution(lambda);
  return generate("curandGeneratePoisson", generator, CUDA_R_32I, output, count,
                  [&](curandGenerator_st &one) { return distribution(one.engine); });
}
