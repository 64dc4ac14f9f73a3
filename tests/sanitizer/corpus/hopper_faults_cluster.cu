// Planted faults of clusters: distributed shared memory, barriers of other blocks, multicast. The line that
// must be named has a comment, as in faults.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "hopper.h"

namespace {

#define CLUSTER __global__ void __cluster_dims__(2, 1, 1)

CLUSTER neighbour_read_before_it_wrote(int *out) {
  __shared__ int own[kThreads];
  own[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = read_remote(remote(own + threadIdx.x, cluster_rank() ^ 1)); // fault(neighbour_read_before_it_wrote): race between blocks
  sync_cluster();
}
CASE(neighbour_read_before_it_wrote) {
  Device<int> out(2 * kThreads);
  neighbour_read_before_it_wrote<<<2, kThreads>>>(out);
}

CLUSTER overwritten_before_the_neighbour_read(int *out) {
  __shared__ int own[kThreads];
  for (int i = 0; i < 2; ++i) {
    own[threadIdx.x] = int(threadIdx.x) + i; // fault(overwritten_before_the_neighbour_read): race between blocks
    sync_cluster();
    out[blockIdx.x * kThreads + threadIdx.x] = read_remote(remote(own + threadIdx.x, cluster_rank() ^ 1));
  }
  sync_cluster();
}
CASE(overwritten_before_the_neighbour_read) {
  Device<int> out(2 * kThreads);
  overwritten_before_the_neighbour_read<<<2, kThreads>>>(out);
}

CLUSTER both_write_one_word(int *out) {
  __shared__ int sum[2];
  sync_cluster();
  write_remote(remote(sum, 0), int(cluster_rank())); // fault(both_write_one_word): race between blocks
  sync_cluster();
  if (cluster_rank() == 0)
    out[0] = sum[0];
}
CASE(both_write_one_word) {
  Device<int> out(1);
  both_write_one_word<<<2, 1>>>(out);
}

CLUSTER own_read_while_the_neighbour_writes(int *out) {
  __shared__ int own[kThreads];
  own[threadIdx.x] = 0;
  sync_cluster();
  write_remote(remote(own + threadIdx.x, cluster_rank() ^ 1), 7);
  __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = own[threadIdx.x]; // fault(own_read_while_the_neighbour_writes): race between blocks
  sync_cluster();
}
CASE(own_read_while_the_neighbour_writes) {
  Device<int> out(2 * kThreads);
  own_read_while_the_neighbour_writes<<<2, kThreads>>>(out);
}

CLUSTER generic_address_without_barrier(int *out) {
  __shared__ int own[kThreads];
  own[threadIdx.x] = 1;
  __syncthreads();
  const int *theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(own + threadIdx.x), "r"(cluster_rank() ^ 1));
  out[blockIdx.x * kThreads + threadIdx.x] = *theirs; // fault(generic_address_without_barrier): race between blocks
  sync_cluster();
}
CASE(generic_address_without_barrier) {
  Device<int> out(2 * kThreads);
  generic_address_without_barrier<<<2, kThreads>>>(out);
}

/// Block 1 is gone when block 0 reads.
CLUSTER exit_while_the_neighbour_reads(int *out) {
  __shared__ int own;
  own = 3;
  sync_cluster();
  if (cluster_rank() == 0)
    out[0] = read_remote(remote(&own, 1)); // fault(exit_while_the_neighbour_reads): fault
}
CASE(exit_while_the_neighbour_reads) {
  Device<int> out(1);
  exit_while_the_neighbour_reads<<<2, 1>>>(out);
}

/// Block 0 happens to be there still when block 1 reads.
CLUSTER exit_that_comes_late_by_luck(int *out) {
  __shared__ int own;
  own = 3;
  sync_cluster();
  if (cluster_rank() == 1)
    out[0] = read_remote(remote(&own, 0)); // fault(exit_that_comes_late_by_luck): race between blocks
}
CASE(exit_that_comes_late_by_luck) {
  Device<int> out(1);
  exit_that_comes_late_by_luck<<<2, 1>>>(out);
}

// --- barriers of other blocks -------------------------------------------------------------------------------------

CLUSTER remote_arrival_before_the_init(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, 1);
  fence_barrier_init();
  if (cluster_rank() == 1 && threadIdx.x == 0)
    arrive_remote(remote(&barrier, 0)); // fault(remote_arrival_before_the_init): race between blocks
  if (cluster_rank() == 0)
    wait(barrier, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
  sync_cluster();
}
CASE(remote_arrival_before_the_init) {
  Device<int> out(2 * kThreads);
  remote_arrival_before_the_init<<<2, kThreads>>>(out);
}

CLUSTER relaxed_arrival_without_fence(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, 1);
  arrive_at_cluster_relaxed();
  wait_for_cluster();
  if (cluster_rank() == 1 && threadIdx.x == 0)
    arrive_remote(remote(&barrier, 0)); // fault(relaxed_arrival_without_fence): race between blocks
  if (cluster_rank() == 0)
    wait(barrier, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
  sync_cluster();
}
CASE(relaxed_arrival_without_fence) {
  Device<int> out(2 * kThreads);
  relaxed_arrival_without_fence<<<2, kThreads>>>(out);
}

/// Block 0 does not wait for the last arrival at its barrier.
CLUSTER no_wait_for_the_last_arrival(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, 1);
  fence_inits();
  sync_cluster();
  if (cluster_rank() == 1 && threadIdx.x == 0)
    arrive_remote(remote(&barrier, 0)); // fault(no_wait_for_the_last_arrival): race between blocks
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
}
CASE(no_wait_for_the_last_arrival) {
  Device<int> out(2 * kThreads);
  no_wait_for_the_last_arrival<<<2, kThreads>>>(out);
}

CLUSTER arrives_twice() {
  arrive_at_cluster();
  arrive_at_cluster(); // fault(arrives_twice): barrier
  wait_for_cluster();
}
CASE(arrives_twice) { arrives_twice<<<2, kThreads>>>(); }

CLUSTER half_a_block_at_the_cluster_barrier(int *out) {
  if (threadIdx.x < 64)
    sync_cluster(); // fault(half_a_block_at_the_cluster_barrier): barrier
  else
    asm volatile("bar.sync 1, 128;" ::: "memory");
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
}
CASE(half_a_block_at_the_cluster_barrier) {
  Device<int> out(2 * kThreads);
  half_a_block_at_the_cluster_barrier<<<2, kThreads>>>(out);
}

// --- multicast ----------------------------------------------------------------------------------------------------

#define MULTICAST                                                                                            \
  __shared__ alignas(1024) Element tile[kTile];                                                              \
  __shared__ Barrier full;                                                                                   \
  const unsigned rank = cluster_rank();                                                                      \
  if (threadIdx.x == 0)                                                                                      \
    init(full, 1);                                                                                           \
  fence_inits();                                                                                             \
  sync_cluster()

CLUSTER multicast_not_waited_for(Element *out, const Element *in) {
  MULTICAST;
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    if (rank == 0)
      load_multicast(tile, in, kTileBytes, full, 3);
  }
  sync_cluster();
  if (rank == 0)
    wait(full, 0);
  out[rank * kThreads + threadIdx.x] = tile[threadIdx.x]; // fault(multicast_not_waited_for): copy not waited for
}
CASE(multicast_not_waited_for) {
  Device<Element> in(kTile), out(kTile);
  multicast_not_waited_for<<<2, kThreads>>>(out, in);
}

CLUSTER multicast_over_a_tile_in_use(Element *out, const Element *in) {
  MULTICAST;
  for (unsigned i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) {
      expect(full, kTileBytes);
      if (rank == 0)
        load_multicast(tile, in + i * kTile, kTileBytes, full, 3); // fault(multicast_over_a_tile_in_use): race between blocks
    }
    wait(full, i & 1);
    sync_cluster();
    out[rank * kThreads + threadIdx.x] = tile[threadIdx.x];
    __syncthreads();
  }
  sync_cluster();
}
CASE(multicast_over_a_tile_in_use) {
  Device<Element> in(2 * kTile), out(kTile);
  multicast_over_a_tile_in_use<<<2, kThreads>>>(out, in);
}

CLUSTER multicast_over_operands(float *out, const Element *in) {
  MULTICAST;
  Accumulator d = {};
  for (unsigned i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) {
      expect(full, kTileBytes);
      if (rank == 0)
        load_multicast(tile, in + i * kTile, kTileBytes, full, 3); // fault(multicast_over_operands): read not waited for
    }
    wait(full, i & 1);
    sync_cluster();
    begin_products();
    product(d, descriptor(tile), descriptor(tile));
    commit_products();
    wait_products<0>();
    __syncthreads();
  }
  write_out(out + 512 * rank, d);
  sync_cluster();
}
CASE(multicast_over_operands) {
  Device<Element> in(2 * kTile);
  Device<float> out(1024);
  multicast_over_operands<<<2, kThreads>>>(out, in);
}

CLUSTER one_block_expects_no_bytes(Element *out, const Element *in) {
  MULTICAST;
  if (threadIdx.x == 0) {
    if (rank == 0) {
      expect(full, kTileBytes);
      load_multicast(tile, in, kTileBytes, full, 3);
    } else {
      arrive(full);
    }
  }
  sync_cluster();
  wait(full, 0);
  out[rank * kThreads + threadIdx.x] = tile[threadIdx.x]; // fault(one_block_expects_no_bytes): copy not waited for
  sync_cluster();
}
CASE(one_block_expects_no_bytes) {
  Device<Element> in(kTile), out(kTile);
  one_block_expects_no_bytes<<<2, kThreads>>>(out, in);
}

CLUSTER exit_before_the_multicast_lands(Element *out, const Element *in) {
  MULTICAST;
  if (rank == 0 && threadIdx.x == 0) {
    expect(full, kTileBytes);
    load_multicast(tile, in, kTileBytes, full, 3); // fault(exit_before_the_multicast_lands): copy not waited for
  }
  sync_cluster();
  if (rank == 0) {
    wait(full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
  }
}
CASE(exit_before_the_multicast_lands) {
  Device<Element> in(kTile), out(kTile);
  exit_before_the_multicast_lands<<<2, kThreads>>>(out, in);
}

// --- spans between blocks ---------------------------------------------------------------------------------------------

CLUSTER source_of_a_sent_span_written(int *out) {
  __shared__ alignas(128) int from[kThreads], to[kThreads];
  __shared__ Barrier full;
  from[threadIdx.x] = int(threadIdx.x);
  fence_proxy();
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, sizeof to);
  }
  fence_inits();
  sync_cluster();
  const unsigned other = cluster_rank() ^ 1;
  if (threadIdx.x == 0)
    send(remote(to, other), from, sizeof from, remote(&full, other));
  __syncthreads();
  from[threadIdx.x] = 0; // fault(source_of_a_sent_span_written): read not waited for
  wait(full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = to[threadIdx.x];
  sync_cluster();
}
CASE(source_of_a_sent_span_written) {
  Device<int> out(2 * kThreads);
  source_of_a_sent_span_written<<<2, kThreads>>>(out);
}

CLUSTER sent_without_proxy_fence(int *out) {
  __shared__ alignas(128) int from[kThreads], to[kThreads];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, sizeof to);
  }
  fence_inits();
  from[threadIdx.x] = int(threadIdx.x);
  sync_cluster();
  const unsigned other = cluster_rank() ^ 1;
  if (threadIdx.x == 0)
    send(remote(to, other), from, sizeof from, remote(&full, other)); // fault(sent_without_proxy_fence): proxy fence
  wait(full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = to[threadIdx.x];
  sync_cluster();
}
CASE(sent_without_proxy_fence) {
  Device<int> out(2 * kThreads);
  sent_without_proxy_fence<<<2, kThreads>>>(out);
}

// --- words between blocks ---------------------------------------------------------------------------------------------

#define BOX                                                                                                  \
  __shared__ alignas(16) int box[kThreads];                                                                  \
  __shared__ Barrier full;                                                                                   \
  const unsigned other = cluster_rank() ^ 1;                                                                 \
  if (threadIdx.x == 0)                                                                                      \
    init(full, 1);                                                                                           \
  fence_inits()

CLUSTER words_not_waited_for(int *out) {
  BOX;
  if (threadIdx.x == 0)
    expect(full, sizeof box);
  sync_cluster();
  send_word(remote(box + threadIdx.x, other), int(threadIdx.x), remote(&full, other));
  sync_cluster();
  out[blockIdx.x * kThreads + threadIdx.x] = box[threadIdx.x]; // fault(words_not_waited_for): copy not waited for
  wait(full, 0);
}
CASE(words_not_waited_for) {
  Device<int> out(2 * kThreads);
  words_not_waited_for<<<2, kThreads>>>(out);
}

/// The second round's words may come while block 0 still reads the first one's.
CLUSTER words_sent_over_words_in_use(int *out) {
  BOX;
  if (threadIdx.x == 0)
    expect(full, sizeof box);
  sync_cluster();
  if (cluster_rank() == 1) {
    send_word(remote(box + threadIdx.x, other), 1, remote(&full, other));
    sync_cluster();
    send_word(remote(box + threadIdx.x, other), 2, remote(&full, other)); // fault(words_sent_over_words_in_use): race between blocks
  } else {
    wait(full, 0);
    if (threadIdx.x == 0)
      expect(full, sizeof box);
    sync_cluster();
    out[threadIdx.x] = box[kThreads - 1 - threadIdx.x];
    wait(full, 1);
  }
  sync_cluster();
}
CASE(words_sent_over_words_in_use) {
  Device<int> out(kThreads);
  words_sent_over_words_in_use<<<2, kThreads>>>(out);
}

CLUSTER word_sent_before_the_init(int *out) {
  BOX;
  if (threadIdx.x == 0)
    expect(full, sizeof box);
  __syncthreads();
  if (cluster_rank() == 1)
    send_word(remote(box + threadIdx.x, 0), int(threadIdx.x), remote(&full, 0)); // fault(word_sent_before_the_init): race between blocks
  if (cluster_rank() == 0)
    wait(full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
  sync_cluster();
}
CASE(word_sent_before_the_init) {
  Device<int> out(2 * kThreads);
  word_sent_before_the_init<<<2, kThreads>>>(out);
}

CLUSTER two_words_sent_to_one_place(int *out) {
  BOX;
  if (threadIdx.x == 0)
    expect(full, sizeof box);
  sync_cluster();
  send_word(remote(box + threadIdx.x / 2, other), int(threadIdx.x), remote(&full, other)); // fault(two_words_sent_to_one_place): copy not waited for
  wait(full, 0);
  if (threadIdx.x < kThreads / 2)
    out[blockIdx.x * kThreads + threadIdx.x] = box[threadIdx.x];
  sync_cluster();
}
CASE(two_words_sent_to_one_place) {
  Device<int> out(2 * kThreads);
  two_words_sent_to_one_place<<<2, kThreads>>>(out);
}

CLUSTER exit_before_the_words_land() {
  BOX;
  if (threadIdx.x == 0)
    expect(full, sizeof box);
  sync_cluster();
  send_word(remote(box + threadIdx.x, other), int(threadIdx.x), remote(&full, other)); // fault(exit_before_the_words_land): copy not waited for
  sync_cluster();
}
CASE(exit_before_the_words_land) { exit_before_the_words_land<<<2, kThreads>>>(); }

CLUSTER word_past_the_neighbours_memory() {
  BOX;
  sync_cluster();
  if (cluster_rank() == 0 && threadIdx.x == 0)
    send_word(remote(box, 1) + (1 << 20), 1, remote(&full, 1)); // fault(word_past_the_neighbours_memory): out of bounds
  sync_cluster();
}
CASE(word_past_the_neighbours_memory) { word_past_the_neighbours_memory<<<2, kThreads>>>(); }

#define SUM(blocks)                                                                                             \
  __shared__ int sum;                                                                                        \
  __shared__ Barrier full;                                                                                   \
  const unsigned rank = cluster_rank();                                                                      \
  if (threadIdx.x == 0) {                                                                                    \
    init(full, 1);                                                                                           \
    expect(full, blocks * kThreads * sizeof(int));                                                           \
  }                                                                                                          \
  fence_inits()

CLUSTER sum_read_before_the_additions(int *out) {
  SUM(2);
  if (threadIdx.x == 0)
    sum = 0;
  sync_cluster();
  add_word(remote(&sum, 0), int(threadIdx.x), remote(&full, 0));
  sync_cluster();
  if (rank == 0) {
    out[threadIdx.x] = sum; // fault(sum_read_before_the_additions): copy not waited for
    wait(full, 0);
  }
}
CASE(sum_read_before_the_additions) {
  Device<int> out(kThreads);
  sum_read_before_the_additions<<<2, kThreads>>>(out);
}

CLUSTER sum_zeroed_while_they_add(int *out) {
  SUM(1);
  sync_cluster();
  if (rank == 0 && threadIdx.x == 0)
    sum = 0; // fault(sum_zeroed_while_they_add): copy not waited for
  if (rank == 1)
    add_word(remote(&sum, 0), int(threadIdx.x), remote(&full, 0));
  if (rank == 0) {
    wait(full, 0);
    out[threadIdx.x] = sum;
  }
  sync_cluster();
}
CASE(sum_zeroed_while_they_add) {
  Device<int> out(kThreads);
  sum_zeroed_while_they_add<<<2, kThreads>>>(out);
}

CLUSTER sum_of_nothing(int *out) {
  SUM(2);
  sync_cluster();
  add_word(remote(&sum, 0), int(threadIdx.x), remote(&full, 0)); // fault(sum_of_nothing): uninitialised read
  if (rank == 0) {
    wait(full, 0);
    out[threadIdx.x] = sum;
  }
  sync_cluster();
}
CASE(sum_of_nothing) {
  Device<int> out(kThreads);
  sum_of_nothing<<<2, kThreads>>>(out);
}

/// Who adds sees no end of the additions: only the owner's mbarrier tells.
CLUSTER sum_read_by_the_one_who_added(int *out) {
  SUM(2);
  if (threadIdx.x == 0)
    sum = 0;
  sync_cluster();
  add_word(remote(&sum, 0), int(threadIdx.x), remote(&full, 0));
  if (rank == 1)
    out[threadIdx.x] = read_remote(remote(&sum, 0)); // fault(sum_read_by_the_one_who_added): copy not waited for
  if (rank == 0)
    wait(full, 0);
  sync_cluster();
}
CASE(sum_read_by_the_one_who_added) {
  Device<int> out(kThreads);
  sum_read_by_the_one_who_added<<<2, kThreads>>>(out);
}

} // namespace
