// A program that makes random valid and invalid CUDA runtime calls and knows their required results.
//
// It passes whatever a C program can: any size, any number as an enumerator, null, pointers to device memory
// that is freed, too small or unmapped, and destroyed handles. It does not pass invalid host pointers (a
// copy's host side, the address for a result), since the runtime must dereference these, here as on a GPU.
// For the same reason, it never passes an unallocated pointer where cudaMemcpyDefault would take it for the
// host's, and never runs kernels that terminate on a grid of billions of blocks.
#pragma once

#include "arguments.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fuzz {

/// The fat binary that all programs share, and the host's handles for its contents.
struct Device {
  enum Kernel { fill, tile, narrow, variables, heap, stop, spin, missing, kernels };
  static constexpr const char *kKernelNames[kernels] = {"fill", "tile", "narrow", "variables",
                                                        "heap", "stop", "spin",   "missing"};
  char functions[kernels]; ///< their addresses are the kernels
  char words, table, missing_variable;
  void *shared_by_both = nullptr; ///< the pointer to a managed variable
  const std::string *ptx = nullptr;
};

/// Handles and memory that threads pass to each other.
struct Exchange {
  std::mutex mutex;
  std::vector<cudaStream_t> streams;
  std::vector<cudaEvent_t> events;
  std::vector<void *> memory;
};

struct Rules {
  bool is_alone = true;    ///< no other threads: all results of calls are known
  bool may_break = true;   ///< allows kernels that fault, and resets
  bool is_checked = false; ///< the sanitizer records faults
};

class HostProgram {
public:
  HostProgram(std::uint64_t seed, const Rules &rules, Device &device, Exchange &exchange);
  ~HostProgram() = default;
  HostProgram(const HostProgram &) = delete;

  /// Undoes the settings of earlier programs. Called for one of the programs that run together.
  void prepare();
  void run(std::size_t calls);
  /// Checks the contents of memory, and releases everything.
  void finish();

private:
  enum class Kind { device, managed, pinned, registered };
  struct Block {
    Kind kind;
    char *pointer;
    std::vector<unsigned char> contents; ///< the required contents
    std::unique_ptr<char[]> own;         ///< of registered memory
    std::size_t bytes() const { return contents.size(); }
    bool is_hosts() const { return kind == Kind::pinned || kind == Kind::registered; }
  };
  /// One side of a copy. `block` is the block that the pointer points to, nullptr if none.
  struct Place {
    char *pointer = nullptr;
    Block *block = nullptr;
    bool is_buffer = false; ///< in the program's own memory, where `room` must not be exceeded
    std::size_t room = 0;
    unsigned char *mirror = nullptr; ///< the required contents from here on
  };
  /// Rows in memory. The first begins `start()` bytes from the pointer.
  struct Rows {
    std::size_t pitch = 0, rows = 0; ///< `rows` in a slice
    std::size_t x = 0, y = 0, z = 0;
    bool has_slices = false;
  };
  struct Box {
    std::size_t width, height, depth;
    bool is_empty() const { return width == 0 || height == 0 || depth == 0; }
  };

  // --- verdicts ---
  void call(const char *name, cudaError_t code, bool is_known = false, bool must_succeed = false);
  /// The call's result is known: success, or some error.
  void expect(const char *name, cudaError_t code, bool success) { call(name, code, true, success); }
  /// The answer of a query, which may also be that the work is unfinished.
  void answered(const char *name, cudaError_t code, bool success) {
    if (code != cudaErrorNotReady)
      expect(name, code, success);
  }
  [[noreturn]] void fail(const std::string &what) const;
  void verify(const Block &block);
  void refresh(Block &block);
  bool is_exact() const { return rules_.is_alone || !rules_.may_break; }

  // --- memory ---
  void allocate();
  void allocate_pitched();
  void release();
  void release_wrong();
  void register_host();
  void keep(Kind kind, void *pointer, std::size_t bytes);
  void forget(std::size_t index);
  void reset();
  void ask_memory();
  void pools();

  // --- copies and fills ---
  enum class Side { host, device, either };
  Place place(Side side, std::vector<unsigned char> &buffer, std::vector<unsigned char> &mirror);
  bool holds(const Place &place, std::size_t bytes) const;
  bool holds(const Place &place, const Rows &rows, const Box &box) const;
  Box box(bool is_3d, bool is_hostile);
  Rows rows(const Place &place, Box &box, bool is_3d);
  static unsigned char *row(const Place &place, const Rows &rows, std::size_t y, std::size_t z);
  void copy();
  void copy_pitched();
  void set();
  void set_pitched();
  void copy_symbol();
  void clear_variables();
  void verify_variables();

  // --- launches ---
  void permit_shared();
  dim3 size_of_grid(bool is_harmless);
  dim3 size_of_block();
  void launch();
  void attributes();
  void occupancy();
  void own_binary();
  void host_function();

  // --- handles, questions ---
  cudaStream_t stream(bool *is_good);
  cudaEvent_t event(bool *is_good);
  void streams();
  void events();
  void exchange();
  void ask();
  void limits();
  void errors();

  Arguments random_;
  const Rules rules_;
  Device &device_;
  Exchange &exchange_;
  bool is_broken_ = false;
  std::vector<Block> blocks_;
  std::vector<void *> freed_;
  std::vector<cudaStream_t> streams_, dead_streams_;
  std::vector<cudaEvent_t> events_, dead_events_;
  std::vector<unsigned char> source_, sink_, sink_mirror_;
  std::vector<unsigned char> words_, table_, shared_by_both_; ///< the required contents of variables
};

} // namespace fuzz
