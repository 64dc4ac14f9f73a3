// Programs of clusters that look as if something were wrong, and are right.
#include "hopper.h"

namespace {

#define CLUSTER __global__ void __cluster_dims__(2, 1, 1)

CLUSTER exchange_by_rounds(int *out) {
  __shared__ int own[kThreads];
  int sum = 0;
  for (int i = 0; i < 3; ++i) {
    own[threadIdx.x] = int(threadIdx.x) + i;
    sync_cluster();
    sum += read_remote(remote(own + threadIdx.x, cluster_rank() ^ 1));
    sync_cluster();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}
CASE(exchange_by_rounds) {
  Device<int> out(2 * kThreads);
  exchange_by_rounds<<<2, kThreads>>>(out);
}

/// Two buffers: one barrier a round is enough.
CLUSTER exchange_by_two_buffers(int *out) {
  __shared__ int own[2][kThreads];
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    own[i % 2][threadIdx.x] = int(threadIdx.x) + i;
    sync_cluster();
    sum += read_remote(remote(own[i % 2] + threadIdx.x, cluster_rank() ^ 1));
  }
  sync_cluster();
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}
CASE(exchange_by_two_buffers) {
  Device<int> out(2 * kThreads);
  exchange_by_two_buffers<<<2, kThreads>>>(out);
}

CLUSTER neighbours_add_up(int *out) {
  __shared__ int sum;
  if (threadIdx.x == 0)
    sum = 0;
  sync_cluster();
  asm volatile("red.relaxed.cluster.shared::cluster.add.s32 [%0], 1;" ::"r"(remote(&sum, 0)) : "memory");
  sync_cluster();
  if (cluster_rank() == 0 && threadIdx.x == 0)
    out[0] = sum;
}
CASE(neighbours_add_up) {
  Device<int> out(1);
  neighbours_add_up<<<2, kThreads>>>(out);
}

/// The own block's shared memory by its address in the cluster.
CLUSTER own_memory_by_cluster_address(int *out) {
  __shared__ int own[kThreads];
  write_remote(remote(own + threadIdx.x, cluster_rank()), int(threadIdx.x));
  __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = own[kThreads - 1 - threadIdx.x];
}
CASE(own_memory_by_cluster_address) {
  Device<int> out(2 * kThreads);
  own_memory_by_cluster_address<<<2, kThreads>>>(out);
}

/// The arrivals need not release anything: the fence publishes the mbarrier.
CLUSTER relaxed_arrival_after_the_fence(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    init(barrier, kThreads);
    fence_inits();
  }
  arrive_at_cluster_relaxed();
  wait_for_cluster();
  arrive_remote(remote(&barrier, cluster_rank() ^ 1));
  wait(barrier, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
}
CASE(relaxed_arrival_after_the_fence) {
  Device<int> out(2 * kThreads);
  relaxed_arrival_after_the_fence<<<2, kThreads>>>(out);
}

/// Work between arrive and wait touches nothing that the neighbour uses.
CLUSTER work_between_arrive_and_wait(int *out) {
  __shared__ int theirs, mine;
  if (threadIdx.x == 0)
    theirs = int(cluster_rank());
  arrive_at_cluster();
  if (threadIdx.x == 0)
    mine = 5;
  wait_for_cluster();
  out[blockIdx.x * kThreads + threadIdx.x] = read_remote(remote(&theirs, cluster_rank() ^ 1));
  sync_cluster();
}
CASE(work_between_arrive_and_wait) {
  Device<int> out(2 * kThreads);
  work_between_arrive_and_wait<<<2, kThreads>>>(out);
}

/// A mailbox: the writer's arrival at the reader's mbarrier hands the words over.
CLUSTER mailbox(int *out) {
  __shared__ int box[kThreads];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, kThreads);
  fence_inits();
  sync_cluster();
  const unsigned other = cluster_rank() ^ 1;
  write_remote(remote(box + threadIdx.x, other), int(threadIdx.x));
  arrive_remote(remote(&full, other));
  wait(full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = box[kThreads - 1 - threadIdx.x];
}
CASE(mailbox) {
  Device<int> out(2 * kThreads);
  mailbox<<<2, kThreads>>>(out);
}

/// Each block loads one half of every tile for both; a buffer is free when both blocks have handed it back.
CLUSTER multicast_ring(float *out, const Element *in, int tiles) {
  constexpr int kStages = 2;
  __shared__ alignas(1024) Element buffers[kStages][kTile];
  __shared__ Barrier full[kStages], empty[kStages];
  const unsigned rank = cluster_rank();
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) {
      init(full[i], 1);
      init(empty[i], 2);
    }
  fence_inits();
  sync_cluster();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads) {
      for (int i = 0; i < tiles; ++i) {
        if (i >= kStages)
          wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
        expect(full[i % kStages], kTileBytes);
        load_multicast(buffers[i % kStages] + rank * kTile / 2, in + i * kTile + rank * kTile / 2,
                       kTileBytes / 2, full[i % kStages], 3);
      }
      for (int i = tiles; i < tiles + kStages; ++i)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
    }
  } else {
    Accumulator d = {};
    for (int i = 0; i < tiles; ++i) {
      wait(full[i % kStages], unsigned(i / kStages) & 1);
      begin_products();
      product(d, descriptor(buffers[i % kStages]), descriptor(buffers[i % kStages]));
      commit_products();
      wait_products<0>();
      if (threadIdx.x < 2)
        arrive_remote(remote(&empty[i % kStages], threadIdx.x));
    }
    write_out(out + 512 * rank, d);
  }
}
CASE(multicast_ring) {
  Device<float> out(1024);
  Device<Element> in(5 * kTile);
  multicast_ring<<<2, kThreads + 32>>>(out, in, 5);
}

CLUSTER spans_sent_both_ways(int *out) {
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
  wait(full, 0);
  sync_cluster(); // the neighbour has what was sent, so it may be overwritten
  from[threadIdx.x] = 0;
  out[blockIdx.x * kThreads + threadIdx.x] = to[threadIdx.x];
}
CASE(spans_sent_both_ways) {
  Device<int> out(2 * kThreads);
  spans_sent_both_ways<<<2, kThreads>>>(out);
}

CLUSTER words_sent(int *out) {
  __shared__ alignas(16) int box[kThreads];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, sizeof box);
  }
  fence_inits();
  sync_cluster();
  const unsigned other = cluster_rank() ^ 1;
  send_word(remote(box + threadIdx.x, other), int(threadIdx.x), remote(&full, other));
  wait(full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = box[kThreads - 1 - threadIdx.x];
  sync_cluster();
}
CASE(words_sent) {
  Device<int> out(2 * kThreads);
  words_sent<<<2, kThreads>>>(out);
}

/// Words come in rounds; the reader says when the box is free again.
CLUSTER words_sent_in_rounds(int *out) {
  __shared__ alignas(16) int box[kThreads];
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(empty, kThreads);
  }
  fence_inits();
  sync_cluster();
  const unsigned other = cluster_rank() ^ 1;
  for (unsigned i = 0; i < 4; ++i) {
    if (threadIdx.x == 0)
      expect(full, sizeof box);
    if (i > 0)
      wait(empty, i - 1 & 1); // the neighbour has read what was sent before
    send_word(remote(box + threadIdx.x, other), int(threadIdx.x + i), remote(&full, other));
    wait(full, i & 1);
    out[blockIdx.x * kThreads + threadIdx.x] = box[kThreads - 1 - threadIdx.x];
    arrive_remote(remote(&empty, other));
  }
  wait(empty, 1);
  sync_cluster();
}
CASE(words_sent_in_rounds) {
  Device<int> out(2 * kThreads);
  words_sent_in_rounds<<<2, kThreads>>>(out);
}

/// Additions to one word need no order among themselves.
CLUSTER words_added(int *out) {
  __shared__ int sum;
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    sum = 0;
    init(full, 1);
    expect(full, 2 * kThreads * sizeof(int));
  }
  fence_inits();
  sync_cluster();
  add_word(remote(&sum, 0), int(threadIdx.x), remote(&full, 0));
  if (cluster_rank() == 0) {
    wait(full, 0);
    out[threadIdx.x] = sum;
  }
  sync_cluster();
}
CASE(words_added) {
  Device<int> out(kThreads);
  words_added<<<2, kThreads>>>(out);
}

/// The sum is used, zeroed and added to again.
CLUSTER words_added_in_rounds(int *out) {
  __shared__ int sum;
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_inits();
  for (unsigned i = 0; i < 3; ++i) {
    if (threadIdx.x == 0) {
      sum = 0;
      expect(full, 2 * kThreads * sizeof(int));
    }
    sync_cluster();
    add_word(remote(&sum, threadIdx.x & 1), 1, remote(&full, threadIdx.x & 1));
    add_word(remote(&sum, threadIdx.x & 1), 1, remote(&full, threadIdx.x & 1));
    wait(full, i & 1);
    out[blockIdx.x * kThreads + threadIdx.x] = sum;
    sync_cluster();
  }
}
CASE(words_added_in_rounds) {
  Device<int> out(2 * kThreads);
  words_added_in_rounds<<<2, kThreads>>>(out);
}

/// What the sender wrote before it sent is known to who has waited for the word.
CLUSTER word_sent_as_a_flag(int *out) {
  __shared__ int data[kThreads], flag;
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, sizeof flag);
  }
  fence_inits();
  sync_cluster();
  const unsigned other = cluster_rank() ^ 1;
  data[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0)
    send_word(remote(&flag, other), 1, remote(&full, other));
  wait(full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = read_remote(remote(data + threadIdx.x, other)) + flag;
  sync_cluster();
}
CASE(word_sent_as_a_flag) {
  Device<int> out(2 * kThreads);
  word_sent_as_a_flag<<<2, kThreads>>>(out);
}

} // namespace
