// Control flow of a function: basic blocks, post-dominators, and where the lanes of a branch meet again.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <vector>

namespace ladder::program {

inline constexpr std::uint32_t kNone = 0xffffffffu;

/// Edges of a graph by node.
using Graph = std::vector<std::vector<std::uint32_t>>;

struct BasicBlock {
  std::uint32_t begin = 0, end = 0; ///< instruction indices
  std::vector<std::uint32_t> successors, predecessors;
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;      ///< in the order of the code; block 0 is the entry
  std::vector<std::uint32_t> block_of; ///< by instruction
};

/// True for an unguarded bra, brx, ret, exit or trap: the next instruction does not follow it.
bool ends_path(const Instruction &instruction);
/// True for bra and brx.
bool is_branch(const Instruction &instruction);

/// Branch targets must be resolved. A guarded ret or exit has the next instruction as its only successor: the
/// lanes that take it are gone, and nobody waits for them.
ControlFlow build_control_flow(const std::vector<Instruction> &code);

/// Immediate dominators of the nodes reachable from `root`; kNone for the root and for unreachable nodes.
/// Lengauer and Tarjan, "A fast algorithm for finding dominators in a flowgraph" (1979), the O(m log n)
/// version.
std::vector<std::uint32_t> immediate_dominators(const Graph &successors, std::uint32_t root);

/// Immediate post-dominators, with an exit joined to all `exits`; kNone where that exit is the only one. A
/// node from which no exit can be reached (an endless loop) counts as leading to one.
std::vector<std::uint32_t> immediate_post_dominators(const Graph &successors,
                                                     const std::vector<std::uint32_t> &exits);

/// Fills Instruction::reconverge and is_reconvergence_point.
void find_reconvergence(std::vector<Instruction> &code, const ControlFlow &flow);

} // namespace ladder::program
