// What textures return at pseudo-random coordinates: one line per texture, with a hash of the results' bits.
// data/filtering.txt has the lines of an H100.
#include "check.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

constexpr int kFetches = 2048;
constexpr int kSize[] = {16, 8, 4};

__global__ void sample(cudaTextureObject_t texture, const float3 *places, float *results, int dimensions) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  const float3 at = places[i];
  results[i] = dimensions == 1   ? tex1D<float>(texture, at.x)
               : dimensions == 2 ? tex2D<float>(texture, at.x, at.y)
                                 : tex3D<float>(texture, at.x, at.y, at.z);
}

struct Random {
  uint32_t seed = 1;
  float next() {
    seed = seed * 1664525u + 1013904223u;
    return float(seed >> 8) / float(1 << 24);
  }
  float3 place(bool normalized) {
    const float z = next() * 3 - 1, y = next() * 3 - 1, x = next() * 3 - 1;
    return normalized ? make_float3(x, y, z) : make_float3(x * kSize[0], y * kSize[1], z * kSize[2]);
  }
};

cudaArray_t image(int dimensions, bool is_bytes, Random &random) {
  const int height = dimensions > 1 ? kSize[1] : 1, depth = dimensions > 2 ? kSize[2] : 1;
  std::vector<float> floats(size_t(kSize[0] * height * depth));
  std::vector<unsigned char> bytes(floats.size());
  for (float &value : floats)
    value = float(int(random.next() * 1000));
  for (unsigned char &value : bytes)
    value = static_cast<unsigned char>(random.next() * 256);
  const cudaChannelFormatDesc format =
      is_bytes ? cudaCreateChannelDesc<unsigned char>() : cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CUDA(cudaMalloc3DArray(&array, &format,
                         make_cudaExtent(size_t(kSize[0]), dimensions > 1 ? size_t(height) : 0,
                                         dimensions > 2 ? size_t(depth) : 0)));
  cudaMemcpy3DParms copy{};
  copy.srcPtr = is_bytes
                    ? make_cudaPitchedPtr(bytes.data(), size_t(kSize[0]), size_t(kSize[0]), size_t(height))
                    : make_cudaPitchedPtr(floats.data(), size_t(kSize[0]) * sizeof(float), size_t(kSize[0]),
                                          size_t(height));
  copy.dstArray = array;
  copy.extent = make_cudaExtent(size_t(kSize[0]), size_t(height), size_t(depth));
  copy.kind = cudaMemcpyHostToDevice;
  CUDA(cudaMemcpy3D(&copy));
  return array;
}

uint32_t hash(const float *results) {
  uint32_t sum = 2166136261u;
  for (int i = 0; i < kFetches; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &results[i], sizeof bits);
    sum = (sum ^ bits) * 16777619u;
  }
  return sum;
}

int main() {
  const char *const modes[] = {"wrap", "clamp", "mirror", "border"};
  Random random;
  float3 *places;
  float *results;
  CUDA(cudaMallocManaged(&places, kFetches * sizeof *places));
  CUDA(cudaMallocManaged(&results, kFetches * sizeof *results));
  for (int dimensions = 1; dimensions <= 3; ++dimensions)
    for (const bool is_bytes : {false, true}) {
      const cudaArray_t array = image(dimensions, is_bytes, random);
      cudaResourceDesc resource{};
      resource.resType = cudaResourceTypeArray;
      resource.res.array.array = array;
      for (const bool normalized : {false, true})
        for (int mode = 0; mode < 4; ++mode)
          for (const bool is_linear : {false, true}) {
            if (!normalized && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror))
              continue;
            cudaTextureDesc settings{};
            for (auto &one : settings.addressMode)
              one = cudaTextureAddressMode(mode);
            settings.filterMode = is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
            settings.readMode = is_bytes ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
            settings.normalizedCoords = normalized;
            cudaTextureObject_t texture;
            CUDA(cudaCreateTextureObject(&texture, &resource, &settings, nullptr));
            for (int i = 0; i < kFetches; ++i) {
              places[i] = random.place(normalized);
              if (i % 8 == 0) // also where the weights of two texels may be equal
                places[i].x = std::floor(places[i].x * 512) / 512;
            }
            sample<<<kFetches / 128, 128>>>(texture, places, results, dimensions);
            CUDA(cudaDeviceSynchronize());
            CUDA(cudaDestroyTextureObject(texture));
            std::printf("%dD %s %s %s %s %08x\n", dimensions, is_bytes ? "u8" : "f32",
                        normalized ? "normalized" : "texels", modes[mode], is_linear ? "linear" : "point",
                        hash(results));
          }
      CUDA(cudaFreeArray(array));
    }
}
