#include "machine/special_registers.h"

#include "machine/block.h"
#include "machine/liberties.h"

#include <algorithm>

namespace ladder::machine {

namespace {

/// The part of the reserved shared memory that programs may know about.
constexpr std::uint32_t kSystemSharedBytes = 288;

struct Coordinates {
  std::uint32_t x, y, z;
};

Coordinates thread_of(const Block &block, int warp, int lane) {
  const Dim3 &dim = block.launch().block;
  const std::uint32_t linear = std::uint32_t(warp) * 32 + std::uint32_t(lane);
  return {linear % dim.x, linear / dim.x % dim.y, linear / dim.x / dim.y};
}

} // namespace

std::uint64_t special_value(program::Special special, const Block &block, int warp, int lane) {
  using S = program::Special;
  const LaunchContext &launch = block.launch();
  const Coordinates thread = thread_of(block, warp, lane);
  const Dim3 ctaid = block.index();
  const std::uint32_t bit = 1u << lane;
  switch (special) {
  case S::tid_x:
    return thread.x;
  case S::tid_y:
    return thread.y;
  case S::tid_z:
    return thread.z;
  case S::ntid_x:
    return launch.block.x;
  case S::ntid_y:
    return launch.block.y;
  case S::ntid_z:
    return launch.block.z;
  case S::ctaid_x:
    return ctaid.x;
  case S::ctaid_y:
    return ctaid.y;
  case S::ctaid_z:
    return ctaid.z;
  case S::nctaid_x:
    return launch.grid.x;
  case S::nctaid_y:
    return launch.grid.y;
  case S::nctaid_z:
    return launch.grid.z;
  case S::laneid:
    return std::uint64_t(lane);
  case S::warpid:
    return std::uint64_t(warp);
  case S::nwarpid:
    return std::uint64_t(launch.gpu->max_threads_per_multiprocessor / 32);
  case S::smid: {
    const std::uint64_t linear =
        ctaid.x + std::uint64_t(launch.grid.x) * (ctaid.y + std::uint64_t(launch.grid.y) * ctaid.z);
    return linear % std::uint64_t(multiprocessors_of(*launch.gpu));
  }
  case S::nsmid:
    return std::uint64_t(multiprocessors_of(*launch.gpu));
  case S::gridid:
    return launch.grid_id;
  case S::lanemask_eq:
    return bit;
  case S::lanemask_le:
    return bit | (bit - 1);
  case S::lanemask_lt:
    return bit - 1;
  case S::lanemask_ge:
    return ~(bit - 1);
  case S::lanemask_gt:
    return ~(bit | (bit - 1));
  case S::dynamic_smem_size:
    return launch.dynamic_shared_bytes;
  case S::total_smem_size:
    return block.shared_end() - block.shared_begin();
  case S::aggr_smem_size:
    return block.shared_end();
  // As on an H200: cooperative groups use the start of the reserved bytes.
  case S::reserved_smem_offset_begin:
  case S::reserved_smem_offset_0:
  case S::reserved_smem_offset_1:
    return 0;
  case S::reserved_smem_offset_end:
    return std::min(block.shared_begin(), kSystemSharedBytes);
  case S::reserved_smem_offset_cap:
    return block.shared_begin();
  // The driver passes the address of the grid's cooperative groups workspace here.
  case S::envreg1:
    return launch.grid_workspace >> 32;
  case S::envreg2:
    return launch.grid_workspace & 0xffffffffu;
  case S::cluster_ctaid_x:
    return ctaid.x % launch.cluster.x;
  case S::cluster_ctaid_y:
    return ctaid.y % launch.cluster.y;
  case S::cluster_ctaid_z:
    return ctaid.z % launch.cluster.z;
  case S::cluster_nctaid_x:
    return launch.cluster.x;
  case S::cluster_nctaid_y:
    return launch.cluster.y;
  case S::cluster_nctaid_z:
    return launch.cluster.z;
  case S::cluster_ctarank:
    return block.cluster_rank();
  case S::cluster_nctarank:
    return launch.cluster.count();
  case S::is_explicit_cluster:
    return launch.has_explicit_clusters;
  case S::clusterid_x:
    return ctaid.x / launch.cluster.x;
  case S::clusterid_y:
    return ctaid.y / launch.cluster.y;
  case S::clusterid_z:
    return ctaid.z / launch.cluster.z;
  case S::nclusterid_x:
    return launch.grid.x / launch.cluster.x;
  case S::nclusterid_y:
    return launch.grid.y / launch.cluster.y;
  case S::nclusterid_z:
    return launch.grid.z / launch.cluster.z;
  case S::clock:
  case S::clock_hi:
  case S::clock64:
  case S::globaltimer:
  case S::globaltimer_lo:
  case S::globaltimer_hi:
    break; // they change while the warp runs; mov reads them
  }
  return 0;
}

} // namespace ladder::machine
