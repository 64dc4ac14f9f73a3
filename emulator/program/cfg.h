// Control flow of a function: basic blocks, post-dominators and reconvergence points.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <vector>

namespace ladder::program {

inline constexpr std::uint32_t kNone = 0xffffffffu;

/// Adjacency lists, by node.
using Graph = std::vector<std::vector<std::uint32_t>>;

struct BasicBlock {
  std::uint32_t begin = 0, end = 0; ///< instruction indices
  std::vector<std::uint32_t> successors, predecessors;
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;      ///< in code order; block 0 is the entry
  std::vector<std::uint32_t> block_of; ///< by instruction
};

/// True for an unguarded bra, brx, ret, exit or trap: control never falls through.
bool ends_path(const Instruction &instruction);
bool is_branch(const Instruction &instruction);

/// Branch targets must be resolved. A guarded ret or exit has only the next instruction as its successor: the
/// lanes that leave are gone, and no lane waits for them.
ControlFlow build_control_flow(const std::vector<Instruction> &code);

/// Immediate dominators of the nodes reachable from `root`; kNone for the root and for unreachable nodes.
/// Uses the O(m log n) algorithm of Lengauer and Tarjan, "A fast algorithm for finding dominators in a
/// flowgraph" (1979).
std::vector<std::uint32_t> immediate_dominators(const Graph &successors, std::uint32_t root);

/// Immediate post-dominators, with a virtual exit that succeeds all `exits`; kNone where only the virtual
/// exit qualifies. An infinite loop, which reaches no exit, is connected to the virtual exit too.
std::vector<std::uint32_t> immediate_post_dominators(const Graph &successors,
                                                     const std::vector<std::uint32_t> &exits);

/// Sets Instruction::reconverge and is_reconvergence_point.
void find_reconvergence(std::vector<Instruction> &code, const ControlFlow &flow);

} // namespace ladder::program
