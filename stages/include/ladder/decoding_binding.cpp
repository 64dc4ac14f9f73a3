#include <limits>

#include "ladder/arguments.h"
#include "ladder/decoding.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  constexpr unsigned alignment = 16; // rungs read and write 16 bytes at a time
  DecodingProblem problem{};
  arguments.tensor("q", problem.q, alignment);
  arguments.tensor("k_cache", problem.k_cache, alignment);
  arguments.tensor("v_cache", problem.v_cache, alignment);
  arguments.tensor("seqused_k", problem.seqused_k);
  arguments.optional_tensor("block_table", problem.block_table);
  arguments.optional_tensor("sinks", problem.sinks);
  arguments.optional_tensor("k_descale", problem.k_descale);
  arguments.optional_tensor("v_descale", problem.v_descale);
  arguments.tensor("o", problem.o, alignment);
  arguments.tensor("lse", problem.lse);
  arguments.strides("k_strides", problem.k_strides);
  arguments.strides("v_strides", problem.v_strides);
  arguments.size("batch", problem.batch);
  arguments.size("heads", problem.heads);
  arguments.size("kv_heads", problem.kv_heads);
  arguments.size("q_len", problem.q_len);
  arguments.size("kv_len", problem.kv_len);
  arguments.size("head_dim", problem.head_dim);
  arguments.size("page_size", problem.page_size, 0);
  arguments.size("table_width", problem.table_width, 0);
  arguments.size("num_splits", problem.num_splits, 0);
  arguments.dtype("dtype", problem.dtype);
  arguments.flag("is_causal", problem.is_causal);
  arguments.number("scale", problem.scale);
  arguments.number("window", problem.window);
  arguments.number("softcap", problem.softcap);
  if (problem.window >= 0 && !problem.is_causal)
    throw std::invalid_argument("a window needs is_causal");
  if (problem.heads % problem.kv_heads != 0)
    throw std::invalid_argument("heads must be a multiple of kv_heads");
  if (problem.q_len > kMostQueries)
    throw std::invalid_argument("a sequence has at most " + std::to_string(kMostQueries) + " queries, not " +
                                std::to_string(problem.q_len));
  if ((problem.block_table != nullptr) != (problem.page_size > 0) || problem.page_size % 16 != 0)
    throw std::invalid_argument("page_size must be a multiple of 16 with a block_table, and 0 without");
  if ((problem.k_descale != nullptr) != (problem.v_descale != nullptr))
    throw std::invalid_argument("k_descale and v_descale belong together");
  const int step = problem.k_descale == nullptr ? 8 : 16; // elements of 16 bytes
  for (const Strides *strides : {&problem.k_strides, &problem.v_strides})
    if (strides->batch % step != 0 || strides->head % step != 0 || strides->row % step != 0 ||
        strides->row > std::numeric_limits<int>::max())
      throw std::invalid_argument("keys, heads and sequences must be multiples of 16 bytes apart, keys by "
                                  "less than 2^31 elements");
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
