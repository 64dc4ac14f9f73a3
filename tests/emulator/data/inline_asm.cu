// Source of inline_asm.ptx: nvcc -ptx -std=c++17 -lineinfo -arch compute_80 inline_asm.cu
__device__ __forceinline__ unsigned bump(unsigned x) {
  asm volatile("{\n\t"
               ".reg .pred p;\n\t"
               ".reg .b32 t<2>;\n\t"
               "setp.lt.u32 p, %0, 5;\n\t"
               "@p add.u32 %0, %0, 1;\n\t"
               "@!p bra done;\n\t"
               "mov.b32 t0, %0;\n\t"
               "add.u32 %0, t0, t0;\n"
               "done:\n\t"
               "}"
               : "+r"(x));
  return x;
}

__device__ __forceinline__ void copy_async(void *to_smem, const void *from) {
  unsigned address = __cvta_generic_to_shared(to_smem);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n" ::"r"(address), "l"(from));
}

__global__ void asm_kernel(unsigned *data, unsigned n) {
  __shared__ uint4 stage[32];
  copy_async(&stage[threadIdx.x], data + 4 * threadIdx.x);
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;\n" ::);
  __syncthreads();
  unsigned x = bump(stage[threadIdx.x].x);
  for (unsigned i = 0; i < n; ++i)
    if (x & 1)
      x = bump(x) + i;
    else
      x += 2;
  unsigned a0, a1, a2, a3;
  unsigned row = __cvta_generic_to_shared(&stage[threadIdx.x]);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3)
               : "r"(row));
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(x), "r"(n));
  switch (n & 7) {
  case 0:
    x += 3;
    break;
  case 1:
    x *= 5;
    break;
  case 2:
    x ^= 77;
    break;
  case 3:
    x -= data[9];
    break;
  case 4:
    x <<= 3;
    break;
  case 5:
    x = __popc(x);
    break;
  }
  data[threadIdx.x] = x + __float_as_uint(d0 + d1 + d2 + d3) + __shfl_xor_sync(~0u, x, 1);
}
