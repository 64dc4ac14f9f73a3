#include "program/cfg.h"

#include <algorithm>

namespace ladder::program {

bool is_branch(const Instruction &instruction) { return instruction.is(Trait::branches); }

bool ends_path(const Instruction &instruction) {
  return !instruction.guarded && (instruction.is(Trait::branches) || instruction.is(Trait::returns) ||
                                  instruction.is(Trait::exits) || instruction.is(Trait::traps));
}

namespace {

/// Targets of a branch, without the fall-through.
std::vector<std::uint32_t> branch_targets(const Instruction &instruction) {
  if (!instruction.targets.empty())
    return instruction.targets;
  return {instruction.operands.at(0).target};
}

} // namespace

ControlFlow build_control_flow(const std::vector<Instruction> &code) {
  const std::size_t count = code.size();
  std::vector<bool> leads(count + 1, false);
  for (std::size_t i = 0; i < count; ++i) {
    if (is_branch(code[i]))
      for (const std::uint32_t target : branch_targets(code[i]))
        leads[target] = true;
    if (is_branch(code[i]) || ends_path(code[i]))
      leads[i + 1] = true;
  }
  ControlFlow flow;
  flow.block_of.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i == 0 || leads[i])
      flow.blocks.push_back({std::uint32_t(i), 0, {}, {}});
    flow.blocks.back().end = std::uint32_t(i + 1);
    flow.block_of[i] = std::uint32_t(flow.blocks.size() - 1);
  }
  for (std::size_t b = 0; b < flow.blocks.size(); ++b) {
    std::vector<std::uint32_t> &successors = flow.blocks[b].successors;
    const Instruction &last = code[flow.blocks[b].end - 1];
    if (is_branch(last))
      for (const std::uint32_t target : branch_targets(last))
        successors.push_back(flow.block_of[target]);
    if (!ends_path(last) && b + 1 < flow.blocks.size())
      successors.push_back(std::uint32_t(b + 1));
    std::sort(successors.begin(), successors.end());
    successors.erase(std::unique(successors.begin(), successors.end()), successors.end());
    for (const std::uint32_t successor : successors)
      flow.blocks[successor].predecessors.push_back(std::uint32_t(b));
  }
  return flow;
}

// --- dominators

namespace {

/// Below, nodes are depth-first numbers; 0 is the root.
class Dominators {
public:
  Dominators(const Graph &successors, std::uint32_t root) : number_(successors.size(), kNone) {
    depth_first(successors, root);
    predecessors_.resize(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i)
      for (const std::uint32_t successor : successors[order_[i]])
        predecessors_[number_[successor]].push_back(std::uint32_t(i));
  }

  std::vector<std::uint32_t> solve() {
    const auto count = std::uint32_t(order_.size());
    semi_.resize(count);
    best_.resize(count);
    ancestor_.assign(count, kNone);
    for (std::uint32_t i = 0; i < count; ++i)
      semi_[i] = best_[i] = i;
    std::vector<std::uint32_t> dominator(count, 0);
    std::vector<std::vector<std::uint32_t>> bucket(count);
    for (std::uint32_t w = count; w-- > 1;) {
      for (const std::uint32_t v : predecessors_[w])
        semi_[w] = std::min(semi_[w], semi_[evaluate(v)]);
      bucket[semi_[w]].push_back(w);
      ancestor_[w] = parent_[w];
      for (const std::uint32_t v : bucket[parent_[w]]) {
        const std::uint32_t u = evaluate(v);
        dominator[v] = semi_[u] < semi_[v] ? u : parent_[w];
      }
      bucket[parent_[w]].clear();
    }
    std::vector<std::uint32_t> result(number_.size(), kNone);
    for (std::uint32_t w = 1; w < count; ++w) {
      if (dominator[w] != semi_[w])
        dominator[w] = dominator[dominator[w]];
      result[order_[w]] = order_[dominator[w]];
    }
    return result;
  }

private:
  void depth_first(const Graph &successors, std::uint32_t root) {
    struct Visit {
      std::uint32_t node;
      std::size_t next = 0;
    };
    std::vector<Visit> stack;
    const auto enter = [&](std::uint32_t node, std::uint32_t parent) {
      number_[node] = std::uint32_t(order_.size());
      order_.push_back(node);
      parent_.push_back(parent);
      stack.push_back({node});
    };
    enter(root, 0);
    while (!stack.empty()) {
      Visit &top = stack.back();
      if (top.next == successors[top.node].size()) {
        stack.pop_back();
        continue;
      }
      const std::uint32_t successor = successors[top.node][top.next++];
      if (number_[successor] == kNone)
        enter(successor, number_[top.node]);
    }
  }

  /// The node with the least semi-dominator on the path from v to its tree's root, with path compression.
  std::uint32_t evaluate(std::uint32_t v) {
    if (ancestor_[v] == kNone)
      return v;
    path_.clear();
    for (std::uint32_t u = v; ancestor_[ancestor_[u]] != kNone; u = ancestor_[u])
      path_.push_back(u);
    for (std::size_t i = path_.size(); i-- > 0;) {
      const std::uint32_t u = path_[i], above = ancestor_[u];
      if (semi_[best_[above]] < semi_[best_[u]])
        best_[u] = best_[above];
      ancestor_[u] = ancestor_[above];
    }
    return best_[v];
  }

  std::vector<std::uint32_t> number_; ///< node -> depth-first number
  std::vector<std::uint32_t> order_;  ///< depth-first number -> node
  std::vector<std::uint32_t> parent_, semi_, best_, ancestor_, path_;
  std::vector<std::vector<std::uint32_t>> predecessors_;
};

} // namespace

std::vector<std::uint32_t> immediate_dominators(const Graph &successors, std::uint32_t root) {
  return Dominators(successors, root).solve();
}

std::vector<std::uint32_t> immediate_post_dominators(const Graph &successors,
                                                     const std::vector<std::uint32_t> &exits) {
  const auto count = std::uint32_t(successors.size());
  Graph reversed(count + 1);
  for (std::uint32_t node = 0; node < count; ++node)
    for (const std::uint32_t successor : successors[node])
      reversed[successor].push_back(node);
  std::vector<bool> reached(count + 1, false);
  std::vector<std::uint32_t> stack;
  const auto connect = [&](std::uint32_t node) {
    reversed[count].push_back(node);
    if (reached[node])
      return;
    reached[node] = true;
    stack.push_back(node);
    while (!stack.empty()) {
      const std::uint32_t top = stack.back();
      stack.pop_back();
      for (const std::uint32_t next : reversed[top])
        if (!reached[next]) {
          reached[next] = true;
          stack.push_back(next);
        }
    }
  };
  for (const std::uint32_t node : exits)
    connect(node);
  for (std::uint32_t node = count; node-- > 0;) // infinite loops, from their last block
    if (!reached[node])
      connect(node);
  std::vector<std::uint32_t> result = immediate_dominators(reversed, count);
  result.resize(count);
  for (std::uint32_t &node : result)
    if (node == count)
      node = kNone;
  return result;
}

// --- reconvergence

namespace {

/// The blocks that can reach `exit`.
std::vector<bool> blocks_leading_to(const ControlFlow &flow, std::uint32_t exit) {
  std::vector<bool> leads(flow.blocks.size(), false);
  std::vector<std::uint32_t> stack{exit};
  leads[exit] = true;
  while (!stack.empty()) {
    const std::uint32_t block = stack.back();
    stack.pop_back();
    for (const std::uint32_t predecessor : flow.blocks[block].predecessors)
      if (!leads[predecessor]) {
        leads[predecessor] = true;
        stack.push_back(predecessor);
      }
  }
  return leads;
}

} // namespace

void find_reconvergence(std::vector<Instruction> &code, const ControlFlow &flow) {
  Graph successors(flow.blocks.size());
  std::vector<std::uint32_t> exits;
  std::uint32_t main_exit = kNone; ///< the last ret or exit in the code
  for (std::uint32_t b = 0; b < flow.blocks.size(); ++b) {
    successors[b] = flow.blocks[b].successors;
    if (!successors[b].empty())
      continue;
    exits.push_back(b);
    if (!code[flow.blocks[b].end - 1].is(Trait::traps))
      main_exit = b;
  }
  const std::vector<std::uint32_t> post_dominator = immediate_post_dominators(successors, exits);

  // A path that ends early (a trap, a return in the middle) leaves the branches around it without a
  // post-dominator. Their other lanes still reconverge, and no lane waits for the lanes that leave, so search
  // again without such paths.
  std::vector<std::uint32_t> without_early_ends(flow.blocks.size(), kNone);
  std::vector<bool> goes_on(flow.blocks.size(), false);
  if (main_exit != kNone && exits.size() > 1) {
    goes_on = blocks_leading_to(flow, main_exit);
    for (std::uint32_t b = 0; b < flow.blocks.size(); ++b) {
      if (!goes_on[b])
        successors[b].clear();
      std::erase_if(successors[b], [&](std::uint32_t successor) { return !goes_on[successor]; });
    }
    without_early_ends = immediate_post_dominators(successors, {main_exit});
  }

  for (std::uint32_t b = 0; b < flow.blocks.size(); ++b) {
    Instruction &branch = code[flow.blocks[b].end - 1];
    branch.reconverge = kNoReconvergence;
    if (!is_branch(branch) || (!branch.guarded && branch.targets.empty()))
      continue;
    std::uint32_t meet = post_dominator[b];
    // If one side only leaves, waiting for it has no benefit.
    const std::vector<std::uint32_t> &sides = flow.blocks[b].successors;
    if (meet == kNone &&
        std::all_of(sides.begin(), sides.end(), [&](std::uint32_t side) { return goes_on[side]; }))
      meet = without_early_ends[b];
    if (meet == kNone)
      continue;
    // Lanes about to leave do so at once: others may be heading for a barrier that must not count them.
    const std::uint32_t target = flow.blocks[meet].begin;
    if (!code[target].guarded && (code[target].is(Trait::returns) || code[target].is(Trait::exits)))
      continue;
    branch.reconverge = target;
    code[target].is_reconvergence_point = true;
  }
}

} // namespace ladder::program
