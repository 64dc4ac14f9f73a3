// ladder emulate program.cu -- 4 2: four ranks pass their numbers round the ring, twice. A rank is a block
// here.
#include <cstdio>
#include <cstdlib>

// A message from each rank to the next one: what it holds, and whether there is one.
struct Mailbox {
  int value, is_full;
};

__device__ int load_acquire(const int *place) {
  int value;
  asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}

__device__ void store_release(int *place, int value) {
  asm volatile("st.release.gpu.b32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

// Returns when the receiver has the value, as a send without a buffer does.
__device__ void send(Mailbox *box, int value) {
  box->value = value;
  store_release(&box->is_full, 1);
  while (load_acquire(&box->is_full) != 0)
    ;
}

__device__ int receive(Mailbox *box) {
  while (load_acquire(&box->is_full) != 1)
    ;
  const int value = box->value;
  store_release(&box->is_full, 0);
  return value;
}

// Each rank has a number, sends it to the next rank and receives that of the rank before, so many times.
__global__ void pass_round(Mailbox *boxes, int *numbers, int times) {
  const int rank = blockIdx.x, ranks = gridDim.x;
  Mailbox *to = &boxes[rank], *from = &boxes[(rank + ranks - 1) % ranks];
  int number = numbers[rank];
  for (int i = 0; i < times; i++) {
    int received;
    if (rank % 2 == 0) {
      send(to, number);
      received = receive(from);
    } else {
      received = receive(from);
      send(to, number);
    }
    number = received;
  }
  numbers[rank] = number;
}

int main(int argc, char **argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, times = argc > 2 ? std::atoi(argv[2]) : 2;
  Mailbox *boxes;
  int *numbers;
  cudaMallocManaged(&boxes, ranks * sizeof(Mailbox));
  cudaMallocManaged(&numbers, ranks * sizeof(int));
  for (int r = 0; r < ranks; r++) {
    boxes[r] = {0, 0};
    numbers[r] = 10 * r + 7;
  }
  pass_round<<<ranks, 1>>>(boxes, numbers, times);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int r = 0; r < ranks; r++) {
    const int wanted = 10 * ((r - times % ranks + ranks) % ranks) + 7;
    if (numbers[r] != wanted) {
      std::printf("rank %d has %d, should have %d\n", r, numbers[r], wanted);
      return 1;
    }
  }
  std::printf("right\n");
}
