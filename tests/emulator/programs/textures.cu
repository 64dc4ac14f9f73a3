// Textures, arrays and surfaces. With an argument: an access that a GPU rejects.
#include "check.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_fp16.h>

constexpr int kMost = 64;
__managed__ float4 out[kMost];
__managed__ int4 whole[kMost];

template <typename T> __device__ float4 as_floats(T value) { return make_float4(float(value), 0, 0, 0); }
template <> __device__ float4 as_floats(float4 value) { return value; }
template <> __device__ float4 as_floats(float2 value) { return make_float4(value.x, value.y, 0, 0); }

template <typename T> __global__ void fetch_1d(cudaTextureObject_t texture, int first, int n) {
  const int i = int(threadIdx.x);
  if (i < n)
    out[i] = as_floats(tex1Dfetch<T>(texture, first + i));
}

template <typename T> __global__ void sample_1d(cudaTextureObject_t texture, float first, float step, int n) {
  const int i = int(threadIdx.x);
  if (i < n)
    out[i] = as_floats(tex1D<T>(texture, first + step * float(i)));
}

template <typename T>
__global__ void sample_2d(cudaTextureObject_t texture, float x, float dx, float y, float dy, int n) {
  const int i = int(threadIdx.x);
  if (i < n)
    out[i] = as_floats(tex2D<T>(texture, x + dx * float(i), y + dy * float(i)));
}

__global__ void sample_2d_whole(cudaTextureObject_t texture, int n) {
  const int i = int(threadIdx.x);
  if (i < n) {
    const int2 value = tex2D<int2>(texture, float(i % 4), float(i / 4));
    whole[i] = make_int4(value.x, value.y, 0, 0);
  }
}

__global__ void sample_others(cudaTextureObject_t volume, cudaTextureObject_t layers,
                              cudaTextureObject_t lines, cudaTextureObject_t plane) {
  out[0].x = tex3D<float>(volume, 1.5f, 0.5f, 1.0f);
  out[0].y = tex3D<float>(volume, 0.5f, 1.5f, 0.5f);
  out[1].x = tex2DLayered<float>(layers, 1.5f, 0.5f, 1);
  out[1].y = tex2DLayered<float>(layers, 1.5f, 0.5f, 7); // the last layer
  out[2].x = tex1DLayered<float>(lines, 2.5f, 1);
  out[3] = tex2Dgather<float4>(plane, 2.0f, 1.0f, 0);
  out[4].x = tex2DLod<float>(plane, 2.5f, 1.5f, 0.0f);
}

template <typename T>
cudaArray_t array_of(const std::vector<T> &values, cudaExtent extent, unsigned flags = 0) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
  cudaArray_t array;
  CUDA(cudaMalloc3DArray(&array, &format, extent, flags));
  cudaMemcpy3DParms copy{};
  const size_t height = std::max<size_t>(extent.height, 1), depth = std::max<size_t>(extent.depth, 1);
  copy.srcPtr =
      make_cudaPitchedPtr(const_cast<T *>(values.data()), extent.width * sizeof(T), extent.width, height);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(extent.width, height, depth);
  copy.kind = cudaMemcpyHostToDevice;
  CUDA(cudaMemcpy3D(&copy));
  return array;
}

cudaResourceDesc resource_of(cudaArray_t array) {
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  return resource;
}

cudaTextureDesc settings(cudaTextureFilterMode filter, cudaTextureAddressMode mode = cudaAddressModeClamp,
                         bool normalized = false, cudaTextureReadMode read = cudaReadModeElementType) {
  cudaTextureDesc texture{};
  for (auto &one : texture.addressMode)
    one = mode;
  texture.filterMode = filter;
  texture.readMode = read;
  texture.normalizedCoords = normalized;
  return texture;
}

cudaTextureObject_t texture_of(const cudaResourceDesc &resource, const cudaTextureDesc &texture) {
  cudaTextureObject_t object;
  CUDA(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
  return object;
}

void wait() {
  CUDA(cudaGetLastError());
  CUDA(cudaDeviceSynchronize());
}

/// The first channels of `out` are these, exactly.
void expect(const std::vector<float> &wanted, int line) {
  wait();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (out[i].x != wanted[i]) {
      std::printf("line %d: value %zu is %.9g, not %.9g\n", line, i, out[i].x, wanted[i]);
      std::exit(1);
    }
}
#define EXPECT(...) expect({__VA_ARGS__}, __LINE__)

void linear_memory() {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  float *data;
  CUDA(cudaMalloc(&data, 32));
  CUDA(cudaMemcpy(data, values.data(), 32, cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = data;
  resource.res.linear.desc = cudaCreateChannelDesc<float>();
  resource.res.linear.sizeInBytes = 32;
  cudaTextureObject_t texture = texture_of(resource, settings(cudaFilterModePoint));
  fetch_1d<float><<<1, 32>>>(texture, 6, 4); // outside: 0
  EXPECT(7, 8, 0, 0);
  fetch_1d<float><<<1, 32>>>(texture, -1, 2);
  EXPECT(0, 1);
  CUDA(cudaDestroyTextureObject(texture));

  // Larger than its memory, within which it is used.
  resource.res.linear.sizeInBytes = 64;
  texture = texture_of(resource, settings(cudaFilterModePoint));
  fetch_1d<float><<<1, 32>>>(texture, 6, 2);
  EXPECT(7, 8);
  CUDA(cudaDestroyTextureObject(texture));

  // Bytes as fractions, in four channels.
  const unsigned char bytes[] = {0, 51, 102, 255, 255, 0, 0, 0};
  CUDA(cudaMemcpy(data, bytes, sizeof bytes, cudaMemcpyHostToDevice));
  resource.res.linear.desc = cudaCreateChannelDesc<uchar4>();
  resource.res.linear.sizeInBytes = sizeof bytes;
  texture = texture_of(
      resource, settings(cudaFilterModePoint, cudaAddressModeClamp, false, cudaReadModeNormalizedFloat));
  fetch_1d<float4><<<1, 32>>>(texture, 0, 2);
  EXPECT(0, 1);
  CHECK(out[0].y == 51 / 255.0f && out[0].z == 102 / 255.0f && out[0].w == 1);
  CUDA(cudaDestroyTextureObject(texture));
  CUDA(cudaFree(data));
}

void lines() {
  const cudaArray_t array = array_of<float>({0, 10, 20, 30}, {4, 0, 0});
  const cudaResourceDesc resource = resource_of(array);
  cudaTextureObject_t texture = texture_of(resource, settings(cudaFilterModePoint));
  sample_1d<float><<<1, 32>>>(texture, -0.75f, 0.75f, 7);
  EXPECT(0, 0, 0, 10, 20, 30, 30);
  CUDA(cudaDestroyTextureObject(texture));
  // Weights of linear filtering have 8 fractional bits.
  texture = texture_of(resource, settings(cudaFilterModeLinear));
  sample_1d<float><<<1, 32>>>(texture, 0.5f, 0.25f, 16);
  EXPECT(0, 2.5, 5, 7.5, 10, 12.5, 15, 17.5, 20, 22.5, 25, 27.5, 30, 30, 30, 30);
  sample_1d<float><<<1, 32>>>(texture, 2.0f, 1 / 256.0f, 3);
  EXPECT(15, 15 + 10 / 256.0f, 15 + 20 / 256.0f);
  sample_1d<float><<<1, 32>>>(texture, 2.0f + 1 / 1024.0f, 0, 1);
  EXPECT(15);
  CUDA(cudaDestroyTextureObject(texture));
  const auto with = [&](cudaTextureAddressMode mode, cudaTextureFilterMode filter, float first, float step,
                        int n) {
    const cudaTextureObject_t one = texture_of(resource, settings(filter, mode, true));
    sample_1d<float><<<1, 32>>>(one, first, step, n);
    wait();
    CUDA(cudaDestroyTextureObject(one));
  };
  with(cudaAddressModeWrap, cudaFilterModePoint, -0.375f, 0.25f, 8);
  EXPECT(20, 30, 0, 10, 20, 30, 0, 10);
  with(cudaAddressModeMirror, cudaFilterModePoint, -0.375f, 0.25f, 8);
  EXPECT(10, 0, 0, 10, 20, 30, 30, 20);
  with(cudaAddressModeClamp, cudaFilterModePoint, -0.375f, 0.25f, 8);
  EXPECT(0, 0, 0, 10, 20, 30, 30, 30);
  with(cudaAddressModeBorder, cudaFilterModePoint, -0.375f, 0.25f, 8);
  EXPECT(0, 0, 0, 10, 20, 30, 0, 0);
  with(cudaAddressModeWrap, cudaFilterModeLinear, 0, 0.25f, 5);
  EXPECT(15, 5, 15, 25, 15);
  with(cudaAddressModeMirror, cudaFilterModeLinear, 0, 0.25f, 5);
  EXPECT(0, 5, 15, 25, 30);
  // A GPU filters a line at the edge of its only row, where the border counts half.
  with(cudaAddressModeBorder, cudaFilterModeLinear, 0, 0.25f, 5);
  EXPECT(0, 2.5, 7.5, 12.5, 7.5);
  CUDA(cudaFreeArray(array));
}

void planes() {
  std::vector<float> values(12);
  for (int i = 0; i < 12; ++i)
    values[size_t(i)] = float(i % 4 + 10 * (i / 4));
  // The same image as an array and as pitched memory.
  const cudaArray_t array = array_of(values, {4, 3, 0});
  float *pitched;
  size_t pitch;
  CUDA(cudaMallocPitch(&pitched, &pitch, 16, 3));
  CUDA(cudaMemcpy2DFromArray(pitched, pitch, array, 0, 0, 16, 3, cudaMemcpyDeviceToDevice));
  cudaResourceDesc memory{};
  memory.resType = cudaResourceTypePitch2D;
  memory.res.pitch2D.devPtr = pitched;
  memory.res.pitch2D.desc = cudaCreateChannelDesc<float>();
  memory.res.pitch2D.width = 4;
  memory.res.pitch2D.height = 3;
  memory.res.pitch2D.pitchInBytes = pitch;
  for (const cudaResourceDesc &resource : {resource_of(array), memory}) {
    cudaTextureObject_t texture = texture_of(resource, settings(cudaFilterModePoint));
    sample_2d<float><<<1, 32>>>(texture, 0.5f, 1, 0.5f, 1, 5);
    EXPECT(0, 11, 22, 23, 23);
    CUDA(cudaDestroyTextureObject(texture));
    texture = texture_of(resource, settings(cudaFilterModeLinear));
    sample_2d<float><<<1, 32>>>(texture, 1, 0.5f, 1, 0.25f, 4);
    EXPECT(5.5, 8.5, 11.5, 14.5);
    CUDA(cudaDestroyTextureObject(texture));
    texture = texture_of(resource, settings(cudaFilterModeLinear, cudaAddressModeBorder));
    sample_2d<float><<<1, 32>>>(texture, 4, 1, 1.5f, 0, 2);
    EXPECT(6.5, 0);
    CUDA(cudaDestroyTextureObject(texture));
  }
  cudaTextureDesc described;
  const cudaTextureObject_t one = texture_of(memory, settings(cudaFilterModeLinear, cudaAddressModeMirror));
  CUDA(cudaGetTextureObjectTextureDesc(&described, one));
  CHECK(described.filterMode == cudaFilterModeLinear && described.addressMode[0] == cudaAddressModeMirror);
  cudaResourceDesc resource;
  CUDA(cudaGetTextureObjectResourceDesc(&resource, one));
  CHECK(resource.resType == cudaResourceTypePitch2D && resource.res.pitch2D.devPtr == pitched);
  CUDA(cudaDestroyTextureObject(one));
  CUDA(cudaFree(pitched));
  CUDA(cudaFreeArray(array));

  // Signed integers of 16 bits, as they are and as fractions; half precision.
  std::vector<short2> pairs(8);
  for (int i = 0; i < 8; ++i)
    pairs[size_t(i)] = make_short2(short(i - 4), short(1000 * i));
  const cudaArray_t shorts = array_of(pairs, {4, 2, 0});
  cudaTextureObject_t texture = texture_of(resource_of(shorts), settings(cudaFilterModePoint));
  sample_2d_whole<<<1, 32>>>(texture, 8);
  wait();
  for (int i = 0; i < 8; ++i)
    CHECK(whole[i].x == i - 4 && whole[i].y == 1000 * i);
  CUDA(cudaDestroyTextureObject(texture));
  texture = texture_of(resource_of(shorts), settings(cudaFilterModePoint, cudaAddressModeClamp, false,
                                                     cudaReadModeNormalizedFloat));
  sample_2d<float2><<<1, 32>>>(texture, 0, 1, 0, 0, 4);
  wait();
  CHECK(out[1].x == -3 / 32767.0f && out[3].y == 3000 / 32767.0f);
  CUDA(cudaDestroyTextureObject(texture));
  CUDA(cudaFreeArray(shorts));
  const cudaChannelFormatDesc format = cudaCreateChannelDescHalf();
  cudaArray_t halves;
  CUDA(cudaMallocArray(&halves, &format, 2, 1));
  const __half two[] = {__float2half(1.5f), __float2half(-2.25f)};
  CUDA(cudaMemcpy2DToArray(halves, 0, 0, two, 4, 4, 1, cudaMemcpyHostToDevice));
  texture = texture_of(resource_of(halves), settings(cudaFilterModeLinear));
  sample_2d<float><<<1, 32>>>(texture, 0.5f, 0.5f, 0.5f, 0, 3);
  EXPECT(1.5, -0.375, -2.25);
  CUDA(cudaDestroyTextureObject(texture));
  CUDA(cudaFreeArray(halves));
}

void volumes_and_layers() {
  std::vector<float> values(12);
  for (int i = 0; i < 12; ++i)
    values[size_t(i)] = float(i % 3 + 10 * (i / 3 % 2) + 100 * (i / 6));
  const cudaArray_t volume = array_of(values, {3, 2, 2});
  const cudaArray_t layers = array_of(values, {3, 2, 2}, cudaArrayLayered);
  const cudaArray_t lines = array_of(values, {3, 0, 4}, cudaArrayLayered);
  const cudaArray_t plane = array_of(values, {6, 2, 0}, cudaArrayTextureGather);
  const cudaTextureDesc linear = settings(cudaFilterModeLinear), point = settings(cudaFilterModePoint);
  const cudaTextureObject_t objects[] = {
      texture_of(resource_of(volume), linear), texture_of(resource_of(layers), linear),
      texture_of(resource_of(lines), linear), texture_of(resource_of(plane), point)};
  sample_others<<<1, 1>>>(objects[0], objects[1], objects[2], objects[3]);
  wait();
  CHECK(out[0].x == 51 && out[0].y == 10);
  CHECK(out[1].x == 101 && out[1].y == 101);
  CHECK(out[2].x == 12);
  // Counterclockwise from the lower left: rows 1 and 0, columns 1 and 2.
  CHECK(out[3].x == 101 && out[3].y == 102 && out[3].z == 2 && out[3].w == 1);
  CHECK(out[4].x == 102);
  for (const cudaTextureObject_t object : objects)
    CUDA(cudaDestroyTextureObject(object));
  cudaExtent extent;
  unsigned flags;
  cudaChannelFormatDesc format;
  CUDA(cudaArrayGetInfo(&format, &extent, &flags, lines));
  CHECK(format.x == 32 && format.f == cudaChannelFormatKindFloat);
  CHECK(extent.width == 3 && extent.height == 0 && extent.depth == 4 && flags == cudaArrayLayered);
  // A part of a volume, back to the host.
  std::vector<float> part(4, -1);
  cudaMemcpy3DParms copy{};
  copy.srcArray = volume;
  copy.srcPos = make_cudaPos(1, 0, 0);
  copy.dstPtr = make_cudaPitchedPtr(part.data(), 8, 2, 1);
  copy.extent = make_cudaExtent(2, 1, 2);
  copy.kind = cudaMemcpyDeviceToHost;
  CUDA(cudaMemcpy3D(&copy));
  CHECK(part[0] == 1 && part[1] == 2 && part[2] == 101 && part[3] == 102);
  copy.srcPos.x = 2;
  CHECK_CODE(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
  cudaGetLastError();
  for (const cudaArray_t array : {volume, layers, lines, plane})
    CUDA(cudaFreeArray(array));
}

template <cudaSurfaceBoundaryMode Mode> __global__ void read_outside(cudaSurfaceObject_t surface) {
  out[0].x = surf2Dread<float>(surface, -4, 1, Mode);
  out[1].x = surf2Dread<float>(surface, 4, 5, Mode);
  surf2Dwrite<float>(77, surface, 12, 9, Mode);
}

__global__ void write_rows(cudaSurfaceObject_t surface, int width, int height) {
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  if (x < width && y < height) {
    surf2Dwrite<float>(surf2Dread<float>(surface, x * 4, y) + 100, surface, x * 4, y);
  }
}

__global__ void write_others(cudaSurfaceObject_t bytes, cudaSurfaceObject_t volume,
                             cudaSurfaceObject_t layers) {
  const int x = int(threadIdx.x);
  surf1Dwrite<uchar4>(make_uchar4(x, 2 * x, 3 * x, 255), bytes, x * 4);
  surf3Dwrite<float2>(make_float2(x, -x), volume, x * 8, 1, 1);
  surf2DLayeredwrite<short>(short(-x), layers, x * 2, 1, 1);
  if (x == 0)
    out[0] = as_floats(float(surf1Dread<uchar4>(bytes, 0).w));
}

cudaSurfaceObject_t surface_of(cudaArray_t array) {
  const cudaResourceDesc resource = resource_of(array);
  cudaSurfaceObject_t surface;
  CUDA(cudaCreateSurfaceObject(&surface, &resource));
  return surface;
}

void surfaces() {
  const cudaArray_t array =
      array_of<float>({0, 1, 2, 3, 10, 11, 12, 13}, {4, 2, 0}, cudaArraySurfaceLoadStore);
  const cudaSurfaceObject_t surface = surface_of(array);
  write_rows<<<1, dim3(8, 4)>>>(surface, 4, 2);
  std::vector<float> back(8);
  CUDA(cudaMemcpy2DFromArray(back.data(), 16, array, 0, 0, 16, 2, cudaMemcpyDeviceToHost));
  CHECK(back[0] == 100 && back[3] == 103 && back[4] == 110 && back[7] == 113);
  read_outside<cudaBoundaryModeZero><<<1, 1>>>(surface);
  EXPECT(0, 0);
  CUDA(cudaMemcpyFromArray(back.data(), array, 0, 0, 32, cudaMemcpyDeviceToHost));
  CHECK(back[7] == 113);
  read_outside<cudaBoundaryModeClamp><<<1, 1>>>(surface);
  EXPECT(110, 111);
  CUDA(cudaMemcpyFromArray(back.data(), array, 0, 0, 32, cudaMemcpyDeviceToHost));
  CHECK(back[7] == 77);
  const cudaArray_t copy = array_of<float>({0, 0, 0, 0, 0, 0, 0, 0}, {4, 2, 0});
  CUDA(cudaMemcpy2DArrayToArray(copy, 4, 0, array, 8, 1, 8, 1));
  CUDA(cudaMemcpyToArray(copy, 0, 1, back.data(), 16, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpyFromArray(back.data(), copy, 0, 0, 32, cudaMemcpyDeviceToHost));
  CHECK(back[0] == 0 && back[1] == 112 && back[2] == 77 && back[4] == 100);
  CUDA(cudaFreeArray(copy));
  CUDA(cudaDestroySurfaceObject(surface));
  CUDA(cudaFreeArray(array));

  const cudaArray_t bytes = array_of<uchar4>(std::vector<uchar4>(8), {8, 0, 0}, cudaArraySurfaceLoadStore);
  const cudaArray_t volume = array_of<float2>(std::vector<float2>(32), {8, 2, 2}, cudaArraySurfaceLoadStore);
  const cudaArray_t layers =
      array_of<short>(std::vector<short>(32), {8, 2, 2}, cudaArrayLayered | cudaArraySurfaceLoadStore);
  const cudaSurfaceObject_t objects[] = {surface_of(bytes), surface_of(volume), surface_of(layers)};
  write_others<<<1, 8>>>(objects[0], objects[1], objects[2]);
  EXPECT(255);
  std::vector<float2> pairs(32);
  std::vector<short> shorts(32);
  cudaMemcpy3DParms all{};
  all.srcArray = volume;
  all.dstPtr = make_cudaPitchedPtr(pairs.data(), 64, 8, 2);
  all.extent = make_cudaExtent(8, 2, 2);
  all.kind = cudaMemcpyDeviceToHost;
  CUDA(cudaMemcpy3D(&all));
  CHECK(pairs[24 + 5].x == 5 && pairs[24 + 5].y == -5 && pairs[23].x == 0);
  all.srcArray = layers;
  all.dstPtr = make_cudaPitchedPtr(shorts.data(), 16, 8, 2);
  CUDA(cudaMemcpy3D(&all));
  CHECK(shorts[24 + 7] == -7 && shorts[16] == 0);
  for (const cudaSurfaceObject_t object : objects)
    CUDA(cudaDestroySurfaceObject(object));
  for (const cudaArray_t one : {bytes, volume, layers})
    CUDA(cudaFreeArray(one));
}

void refused_calls() {
  const cudaChannelFormatDesc wrong = cudaCreateChannelDesc(32, 16, 0, 0, cudaChannelFormatKindFloat);
  cudaArray_t none;
  CHECK_CODE(cudaMallocArray(&none, &wrong, 4, 4), cudaErrorInvalidChannelDescriptor);
  cudaGetLastError();
}

void rejected(const std::string &what) {
  const cudaArray_t array =
      array_of<float>({0, 1, 2, 3, 10, 11, 12, 13}, {4, 2, 0}, cudaArraySurfaceLoadStore);
  const cudaSurfaceObject_t surface = surface_of(array);
  const cudaTextureObject_t texture = texture_of(resource_of(array), settings(cudaFilterModePoint));
  if (what == "trap")
    read_outside<cudaBoundaryModeTrap><<<1, 1>>>(surface);
  if (what == "destroyed") {
    CUDA(cudaDestroyTextureObject(texture));
    sample_2d<float><<<1, 32>>>(texture, 0, 0, 0, 0, 1);
  }
  if (what == "geometry")
    sample_1d<float><<<1, 32>>>(texture, 0, 0, 1);
  if (what == "freed") {
    CUDA(cudaFreeArray(array));
    sample_2d<float><<<1, 32>>>(texture, 0, 0, 0, 0, 1);
  }
  std::exit(cudaDeviceSynchronize() == cudaSuccess ? 0 : 3);
}

int main(int count, char **arguments) {
  if (count > 1)
    rejected(arguments[1]);
  linear_memory();
  lines();
  planes();
  volumes_and_layers();
  surfaces();
  refused_calls();
}
