// Name lookup within a function: nested scopes of registers, variables and labels.
#pragma once

#include "ptx/ast.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ladder::program {

/// What a name denotes.
struct Entity {
  enum class Kind {
    none,
    reg,        ///< index: the virtual register
    reg_vector, ///< index: the virtual register of .x; the other components follow
    symbol,     ///< index into Program::symbols
    parameter,  ///< index: offset into the parameter block or area
    label,      ///< index: instruction index
    targets,    ///< index: statement of the .branchtargets, .calltargets or .callprototype
  };
  Kind kind = Kind::none;
  std::uint32_t index = 0;
  ptx::Type type = ptx::Type::none; ///< registers
  unsigned width = 1;               ///< reg_vector
};

/// The scopes of one function. Labels may be used before their definition, so a first pass declares them,
/// scope by scope; a second pass declares everything else in order. Names must outlive this object.
class Scopes {
public:
  Scopes() : scopes_(1) {}

  /// Enters the next scope in textual order: the first pass creates it, later passes revisit it.
  void open();
  void close() { current_ = scopes_[current_].parent; }
  bool is_outermost() const { return current_ == 0; }
  /// Returns to the outermost scope for another pass.
  void restart();

  /// Returns false if this scope already has the name.
  bool declare(std::string_view name, const Entity &entity);
  /// Declares registers prefix0 to prefix(count-1).
  bool declare_range(std::string_view prefix, std::uint32_t count, const Entity &model);

  /// Looks a name up from the current scope outwards. On the first use of a register of a range,
  /// `new_register(entity)` allocates its virtual register.
  template <typename NewRegister> Entity find(std::string_view name, const NewRegister &new_register) {
    for (std::uint32_t s = current_;; s = scopes_[s].parent) {
      Scope &scope = scopes_[s];
      if (const auto found = scope.names.find(name); found != scope.names.end())
        return found->second;
      if (!scope.ranges.empty()) {
        if (const Entity *model = in_range(scope, name)) {
          Entity entity = *model;
          entity.index = new_register(entity);
          scope.names.emplace(name, entity);
          return entity;
        }
      }
      if (s == 0)
        return {};
    }
  }

  /// Calls visit(name, entity) for what the outermost scope declares, of ranges of registers the used ones.
  template <typename Visit> void each_of_function(const Visit &visit) const {
    for (const auto &[name, entity] : scopes_.front().names)
      visit(name, entity);
  }

private:
  struct Range {
    std::uint32_t count;
    Entity model;
  };
  struct Scope {
    std::uint32_t parent = 0;
    std::unordered_map<std::string_view, Entity> names;
    std::unordered_map<std::string_view, Range> ranges;
  };
  static const Entity *in_range(const Scope &scope, std::string_view name);

  std::vector<Scope> scopes_;
  std::uint32_t current_ = 0, opened_ = 0;
};

} // namespace ladder::program
