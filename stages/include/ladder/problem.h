// What the problems of all operations share.
#pragma once

#include <cstdint>

namespace ladder {

enum class DType { f32, f16, bf16 };

/// How many elements lie from one batch, head and row of a tensor (batch, heads, rows, head_dim) to the next.
/// The elements of a row lie side by side.
struct Strides {
  int64_t batch, head, row;
};

/// What only some rungs of attention take, by the features in their stage.toml.
struct Variant {
  /// The mask: query i sees the keys i + begin to i + end - 1, as far as they exist. A row that sees none has
  /// o = 0 and lse = -inf.
  int begin, end;
  /// The logits are softcap * tanh(scale * q k^T / softcap); 0 leaves them as they are.
  float softcap;
  /// One logit per query head, (heads) in fp32, of a key whose value is 0: exp(sink) is added to each row
  /// sum. Null without sinks.
  const float *sinks;
  /// Sequences of different lengths, one after another: q and o are (total_q, heads, head_dim), k and v
  /// (total_k, kv_heads, head_dim), lse (heads, total_q). Sequence b has the tokens cu_seqlens[b] to
  /// cu_seqlens[b + 1] - 1; there are `batch`, of at most q_len and kv_len tokens. Query i of n sees the keys
  /// m - n + i + begin to m - n + i + end - 1 of m. Null for a batch of equal lengths.
  const int *cu_seqlens_q, *cu_seqlens_k;
  int total_q, total_k;
};

} // namespace ladder
