// Memory of a graph's allocation nodes: its address never changes, and it is in use from the allocation to
// the free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ladder::runtime {

class GraphMemory {
public:
  /// Throws CudaError(cudaErrorMemoryAllocation).
  static std::shared_ptr<GraphMemory> make(std::size_t bytes);
  /// That which starts at `pointer`; nullptr if there is none.
  static std::shared_ptr<GraphMemory> find(const void *pointer);
  /// Bytes in use now, and the most since the last reset.
  static std::uint64_t used();
  static std::uint64_t most_used();
  static void reset_most_used();
  ~GraphMemory();
  GraphMemory(const GraphMemory &) = delete;

  void *pointer() const { return pointer_; }
  bool is_in_use() const { return is_in_use_; }
  /// Throws CudaError(cudaErrorInvalidValue) if it is in use already.
  void allocate();
  /// Throws CudaError(cudaErrorInvalidValue) if it is not in use.
  void free();

private:
  GraphMemory(void *pointer, std::size_t bytes) : pointer_(pointer), bytes_(bytes) {}

  void *pointer_;
  std::size_t bytes_;
  bool is_in_use_ = false;
};

} // namespace ladder::runtime
