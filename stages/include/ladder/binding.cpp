// The Python side of every rung: module ladder_stage with one function, forward. It takes raw device
// pointers, so that it needs neither torch's headers nor its ABI, and is compiled once for all rungs.
#include <cstdint>
#include <pybind11/pybind11.h>
#include <stdexcept>
#include <string>

#include "ladder/problem.h"

namespace {

ladder::DType parse_dtype(const std::string &name) {
  if (name == "f32")
    return ladder::DType::f32;
  if (name == "f16")
    return ladder::DType::f16;
  if (name == "bf16")
    return ladder::DType::bf16;
  throw std::invalid_argument("dtype must be f32, f16 or bf16, not " + name);
}

void forward(std::uintptr_t q, std::uintptr_t k, std::uintptr_t v, std::uintptr_t o, std::uintptr_t lse,
             int batch, int heads, int kv_heads, int q_len, int kv_len, int head_dim,
             const std::string &dtype, bool is_causal, float scale, std::uintptr_t stream) {
  if (batch < 1 || heads < 1 || kv_heads < 1 || q_len < 1 || kv_len < 1)
    throw std::invalid_argument("batch, heads, kv_heads, q_len and kv_len must be at least 1");
  if (heads % kv_heads != 0)
    throw std::invalid_argument("heads must be a multiple of kv_heads");
  ladder::launch({.q = reinterpret_cast<const void *>(q),
                  .k = reinterpret_cast<const void *>(k),
                  .v = reinterpret_cast<const void *>(v),
                  .o = reinterpret_cast<void *>(o),
                  .lse = reinterpret_cast<float *>(lse),
                  .batch = batch,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .q_len = q_len,
                  .kv_len = kv_len,
                  .head_dim = head_dim,
                  .dtype = parse_dtype(dtype),
                  .is_causal = is_causal,
                  .scale = scale},
                 reinterpret_cast<cudaStream_t>(stream));
}

} // namespace

PYBIND11_MODULE(ladder_stage, module) {
  namespace py = pybind11;
  module.def(
      "forward", &forward, py::call_guard<py::gil_scoped_release>(), py::arg("q"), py::arg("k"), py::arg("v"),
      py::arg("o"), py::arg("lse"), py::arg("batch"), py::arg("heads"), py::arg("kv_heads"), py::arg("q_len"),
      py::arg("kv_len"), py::arg("head_dim"), py::arg("dtype"), py::arg("is_causal"), py::arg("scale"),
      py::arg("stream"),
      "Enqueues one attention forward pass on `stream`; tensors are device pointers as ints.\n\n"
      "q, o (batch, heads, q_len, head_dim), k, v (batch, kv_heads, kv_len, head_dim), lse (batch, heads, "
      "q_len) fp32.\n"
      "Raises ValueError for a problem that the rung does not support, RuntimeError when CUDA refuses it.");
}
