#include "program/resolve_function.h"

#include "program/align.h"
#include "program/cfg.h"
#include "program/dead_loads.h"
#include "program/registers.h"
#include "program/scopes.h"
#include "program/special.h"

#include <algorithm>

namespace ladder::program {

namespace {

using ptx::StateSpace;
using ptx::Type;

constexpr std::size_t kMostTargets = 1'000'000; ///< of all brx.idx in a function
constexpr std::uint64_t kMostFrameBytes = std::uint64_t(1)
                                          << 30; ///< of a function's local variables or parameters

/// Appends `bytes` to an area, aligned; returns their offset and advances `end`.
std::uint32_t place(std::uint64_t &end, std::uint64_t bytes, std::uint64_t alignment, int line) {
  const std::uint64_t offset = align_up(end, alignment);
  if (bytes > kMostFrameBytes || offset + bytes > kMostFrameBytes)
    throw LinkError(line, "local variables or parameters take more than 1 GiB");
  end = offset + bytes;
  return std::uint32_t(offset);
}

/// Index of a vector component: .x .y .z .w or .r .g .b .a; 4 for anything else.
unsigned component_index(char letter) {
  const std::size_t at = std::string_view("xyzwrgba").find(letter);
  return at == std::string_view::npos ? 4 : unsigned(at % 4);
}

class FunctionResolver {
public:
  FunctionResolver(Program &program, const ModuleNames &names, std::uint32_t index)
      : program_(program), names_(names), source_(*names.sources[index]), function_(program.functions[index]),
        index_(index) {}

  void resolve() {
    enter_labels();
    scopes_.restart();
    enter_parameters();
    for (const ptx::Statement &statement : source_.body)
      this->statement(statement);
    finish();
  }

private:
  [[noreturn]] void fail(const std::string &what) const { throw LinkError(line_, what); }

  void declare(std::string_view name, const Entity &entity) {
    if (!scopes_.declare(name, entity))
      fail("'" + std::string(name) + "' is declared twice");
  }

  /// First pass: the positions of labels.
  void enter_labels() {
    std::uint32_t at = 0, latest_label = kNone;
    for (std::uint32_t s = 0; s < source_.body.size(); ++s) {
      const ptx::Statement &statement = source_.body[s];
      line_ = statement.ptx_line;
      switch (statement.kind) {
      case ptx::Statement::Kind::instruction:
        ++at;
        break;
      case ptx::Statement::Kind::open_scope:
        scopes_.open();
        break;
      case ptx::Statement::Kind::close_scope:
        scopes_.close();
        break;
      case ptx::Statement::Kind::label:
        declare(statement.name, {Entity::Kind::label, at});
        latest_label = at;
        break;
      case ptx::Statement::Kind::branch_targets:
      case ptx::Statement::Kind::prototype:
        declare(statement.name, {Entity::Kind::targets, s});
        break;
      default:
        break;
      }
    }
    // A label past the last instruction needs an instruction to point at.
    needs_tail_ = latest_label == at;
  }

  void enter_parameters() {
    std::uint64_t end = 0;
    const auto enter = [&](const std::vector<ptx::Variable> &variables, std::vector<Parameter> &out) {
      for (const ptx::Variable &variable : variables) {
        line_ = variable.ptx_line;
        if (variable.space == StateSpace::reg)
          fail("parameter '" + variable.name + "' of '" + function_.name +
               "' is a register; only .param is supported");
        Parameter parameter;
        parameter.name = variable.name;
        parameter.type = variable.type;
        parameter.offset = place(end, variable.bytes, variable.alignment, line_);
        parameter.bytes = std::uint32_t(variable.bytes);
        parameter.alignment = std::uint32_t(variable.alignment);
        declare(variable.name, {Entity::Kind::parameter, parameter.offset});
        out.push_back(std::move(parameter));
      }
    };
    enter(source_.parameters, function_.parameters);
    if (function_.is_entry)
      function_.parameter_bytes = std::uint32_t(end);
    enter(source_.returns, function_.returns);
    // The parameter area of an entry holds only the arguments of its calls.
    area_end_ = function_.is_entry ? 0 : end;
    area_most_ = area_end_;
  }

  void statement(const ptx::Statement &statement) {
    line_ = statement.ptx_line;
    switch (statement.kind) {
    case ptx::Statement::Kind::instruction:
      instruction(statement.instruction);
      break;
    case ptx::Statement::Kind::open_scope:
      scopes_.open();
      area_ends_.push_back(area_end_);
      break;
    case ptx::Statement::Kind::close_scope:
      scopes_.close();
      area_end_ = area_ends_.back();
      area_ends_.pop_back();
      break;
    case ptx::Statement::Kind::registers:
      registers(statement);
      break;
    case ptx::Statement::Kind::variable:
      variable(statement.variable);
      break;
    default: // labels and target lists: the first pass declared them
      break;
    }
  }

  std::uint32_t new_register(Type type, std::uint32_t declared_at) {
    registers_.push_back({type, declared_at});
    return std::uint32_t(registers_.size() - 1);
  }

  void registers(const ptx::Statement &statement) {
    Entity entity;
    entity.kind = statement.vector_width > 1 ? Entity::Kind::reg_vector : Entity::Kind::reg;
    entity.type = statement.type;
    entity.width = statement.vector_width;
    const std::uint32_t declared_at = scopes_.is_outermost() ? 0 : std::uint32_t(function_.code.size());
    if (statement.count > 0) {
      entity.index = declared_at; // in the range's model; registers of a range are allocated on first use
      if (!scopes_.declare_range(statement.name, statement.count, entity))
        fail("registers '" + statement.name + "<>' are declared twice");
      return;
    }
    entity.index = new_registers(entity, declared_at);
    declare(statement.name, entity);
  }

  std::uint32_t new_registers(const Entity &entity, std::uint32_t declared_at) {
    const std::uint32_t first = new_register(entity.type, declared_at);
    for (unsigned i = 1; i < entity.width; ++i)
      new_register(entity.type, declared_at);
    return first;
  }

  void variable(const ptx::Variable &variable) {
    Symbol symbol;
    symbol.name = variable.name;
    symbol.space = variable.space;
    symbol.function = index_;
    symbol.bytes = variable.bytes;
    symbol.alignment = variable.alignment;
    symbol.type = variable.type;
    symbol.variable = &variable;
    symbol.is_dynamic_shared = is_dynamic_shared(variable);
    if (variable.space == StateSpace::local) {
      symbol.offset = place(local_end_, variable.bytes, variable.alignment, line_);
    } else if (variable.space == StateSpace::param) {
      symbol.offset = place(area_end_, variable.bytes, variable.alignment, line_);
      area_most_ = std::max(area_most_, area_end_);
    }
    declare(variable.name, {Entity::Kind::symbol, std::uint32_t(program_.symbols.size())});
    program_.symbols.push_back(std::move(symbol));
  }

  // --- instructions ---

  void instruction(const ptx::Instruction &source) {
    line_ = source.ptx_line;
    Instruction result;
    result.opcode = source.opcode;
    result.modifiers = source.modifiers;
    result.find_row();
    result.location = source.location;
    result.ptx_line = source.ptx_line;
    result.used_bytes = source.used_bytes;
    result.reconverge = kNoReconvergence;
    if (source.guard) {
      const Operand guard = name_operand(source.guard->predicate, 0);
      if (guard.kind != Operand::Kind::reg || guard.reg.type != Type::pred)
        fail("guard '" + source.guard->predicate + "' is not a predicate");
      result.guarded = true;
      result.guard_negated = source.guard->negated;
      result.guard = guard.reg;
    }
    if (result.is(Trait::calls)) {
      call(source, result);
    } else if (result.is(Trait::by_index)) {
      indexed_branch(source, result);
    } else if (result.is(Trait::branches)) {
      if (source.operands.size() != 1)
        fail("bra takes one label");
      result.operands.push_back(label(source.operands[0]));
    } else {
      result.operands.reserve(source.operands.size());
      for (const ptx::Operand &operand : source.operands)
        result.operands.push_back(this->operand(operand));
    }
    function_.code.push_back(std::move(result));
  }

  Operand label(const ptx::Operand &source) {
    Operand result = operand(source);
    if (result.kind != Operand::Kind::label)
      fail("'" + source.name + "' is not a label");
    return result;
  }

  void indexed_branch(const ptx::Instruction &source, Instruction &result) {
    if (source.operands.size() != 2)
      fail("brx.idx takes an index and a list of targets");
    result.operands.push_back(operand(source.operands[0]));
    const Entity list = find(source.operands[1].name);
    if (list.kind != Entity::Kind::targets)
      fail("'" + source.operands[1].name + "' is not a list of branch targets");
    targets_ += source_.body[list.index].targets.size();
    if (targets_ > kMostTargets)
      fail("brx.idx has too many targets");
    for (const std::string &name : source_.body[list.index].targets) {
      const Entity target = find(name);
      if (target.kind != Entity::Kind::label)
        fail("'" + name + "' is not a label");
      result.targets.push_back(target.index);
    }
    if (result.targets.empty())
      fail("'" + source.operands[1].name + "' is not a list of branch targets");
  }

  void call(const ptx::Instruction &source, Instruction &result) {
    const std::vector<ptx::Operand> &operands = source.operands;
    const auto is_list = [&](std::size_t i) {
      return i < operands.size() && operands[i].kind == ptx::Operand::Kind::list;
    };
    Operand empty;
    empty.kind = Operand::Kind::list;
    std::size_t next = 0;
    result.operands.push_back(is_list(next) ? operand(operands[next++]) : empty);
    if (next >= operands.size())
      fail("call without a function");
    Operand target = operand(operands[next++]);
    if (target.kind != Operand::Kind::function && target.kind != Operand::Kind::reg)
      fail("'" + target.name + "' cannot be called");
    result.operands.push_back(target);
    result.operands.push_back(is_list(next) ? operand(operands[next++]) : empty);
    if (next < operands.size()) { // a prototype or a list of call targets
      if (find(operands[next].name).kind != Entity::Kind::targets &&
          !program_.symbol_index.contains(operands[next].name))
        fail("'" + operands[next].name + "' is not a prototype");
      ++next;
    }
    if (next != operands.size())
      fail("call has too many operands");
    if (target.kind == Operand::Kind::function && target.function >= 0)
      calls_.push_back(std::uint32_t(function_.code.size()));
  }

  Entity find(std::string_view name) {
    return scopes_.find(name, [&](const Entity &model) { return new_registers(model, model.index); });
  }

  Operand register_operand(std::uint32_t index) const {
    Operand result;
    result.kind = Operand::Kind::reg;
    result.reg = {registers_[index].type, index};
    return result;
  }

  /// A vector register named without a component stands for all of them.
  Operand vector_operand(const Entity &entity) const {
    Operand result;
    result.kind = Operand::Kind::vector;
    for (unsigned i = 0; i < entity.width; ++i)
      result.elements.push_back(register_operand(entity.index + i));
    return result;
  }

  Operand name_operand(const std::string &name, std::int64_t offset) {
    Operand result;
    result.name = name;
    result.offset = offset;
    const Entity entity = find(name);
    switch (entity.kind) {
    case Entity::Kind::reg:
      result.kind = Operand::Kind::reg;
      result.reg = {entity.type, entity.index};
      return result;
    case Entity::Kind::reg_vector:
      result = vector_operand(entity);
      result.name = name;
      return result;
    case Entity::Kind::symbol:
      result.kind = Operand::Kind::symbol;
      result.symbol = entity.index;
      return result;
    case Entity::Kind::parameter:
      result.kind = Operand::Kind::parameter;
      result.offset = offset + std::int64_t(entity.index);
      return result;
    case Entity::Kind::label:
      result.kind = Operand::Kind::label;
      result.target = entity.index;
      return result;
    case Entity::Kind::targets:
      fail("list '" + name + "' stands where an operand should");
    case Entity::Kind::none:
      break;
    }
    if (name.size() > 2 && name[name.size() - 2] == '.' && component_index(name.back()) < 4) {
      const std::string_view base = std::string_view(name).substr(0, name.size() - 2);
      const Entity vector = find(base);
      if (vector.kind == Entity::Kind::reg_vector && component_index(name.back()) < vector.width) {
        result.kind = Operand::Kind::reg;
        result.reg = {vector.type, vector.index + component_index(name.back())};
        return result;
      }
    }
    if (const std::optional<Special> special = special_from_name(name)) {
      result.kind = Operand::Kind::special;
      result.special = *special;
      return result;
    }
    if (is_zero_special(name)) {
      result.kind = Operand::Kind::integer;
      return result;
    }
    if (const auto symbol = program_.symbol_index.find(name); symbol != program_.symbol_index.end()) {
      result.kind = Operand::Kind::symbol;
      result.symbol = symbol->second;
      return result;
    }
    const auto function = program_.function_index.find(name);
    if (function == program_.function_index.end() && !names_.externals.contains(name))
      fail("unknown name '" + name + "'");
    result.kind = Operand::Kind::function;
    if (function != program_.function_index.end())
      result.function = std::int32_t(function->second);
    return result;
  }

  Operand operand(const ptx::Operand &source) {
    Operand result;
    switch (source.kind) {
    case ptx::Operand::Kind::identifier:
      result = name_operand(source.name, source.offset);
      result.negated = source.negated;
      if (result.negated && (result.kind != Operand::Kind::reg || result.reg.type != Type::pred))
        fail("'" + source.name + "' is negated but is not a predicate");
      if (source.offset != 0 && result.kind != Operand::Kind::symbol &&
          result.kind != Operand::Kind::parameter)
        fail("an offset is added to '" + source.name + "', which is not a variable");
      return result;
    case ptx::Operand::Kind::integer:
      result.kind = Operand::Kind::integer;
      result.bits = source.bits;
      return result;
    case ptx::Operand::Kind::float32:
      result.kind = Operand::Kind::float32;
      result.bits = source.bits;
      return result;
    case ptx::Operand::Kind::float64:
      result.kind = Operand::Kind::float64;
      result.bits = source.bits;
      return result;
    case ptx::Operand::Kind::sink:
      return result;
    case ptx::Operand::Kind::address:
      result.kind = Operand::Kind::address;
      result.offset = source.offset;
      break;
    case ptx::Operand::Kind::vector:
      result.kind = Operand::Kind::vector;
      break;
    case ptx::Operand::Kind::pair:
      result.kind = Operand::Kind::pair;
      break;
    case ptx::Operand::Kind::list:
      result.kind = Operand::Kind::list;
      break;
    }
    result.elements.reserve(source.elements.size());
    for (const ptx::Operand &element : source.elements)
      result.elements.push_back(operand(element));
    if (result.kind == Operand::Kind::address) {
      const Operand &base = result.elements.at(0);
      if (base.kind != Operand::Kind::reg && base.kind != Operand::Kind::integer &&
          base.kind != Operand::Kind::symbol && base.kind != Operand::Kind::parameter)
        fail("'" + base.name + "' is not an address");
      if (base.kind == Operand::Kind::reg && base.reg.type == Type::pred)
        fail("predicate '" + base.name + "' is not an address");
    }
    return result;
  }

  // --- the whole function ---

  void finish() {
    std::vector<Instruction> &code = function_.code;
    if (needs_tail_ || code.empty() || !ends_path(code.back())) {
      Instruction tail;
      tail.opcode = "ret";
      tail.find_row();
      tail.ptx_line = source_.end_line;
      tail.location = code.empty() ? -1 : code.back().location;
      tail.reconverge = kNoReconvergence;
      code.push_back(std::move(tail));
    }
    function_.local_bytes = std::uint32_t(local_end_);
    function_.param_area_bytes = std::uint32_t(align_up(area_most_, 16));
    check_calls();
    const ControlFlow flow = build_control_flow(code);
    find_reconvergence(code, flow);
    find_dead_loads(code, registers_.size());
    const std::vector<std::string> &options = program_.module.target_options;
    const bool is_debug = std::find(options.begin(), options.end(), "debug") != options.end();
    const Allocation allocation = allocate_registers(code, flow, registers_, is_debug);
    function_.frame_bytes = allocation.frame_bytes;
    if (is_debug)
      scopes_.each_of_function([&](std::string_view name, const Entity &entity) {
        if (entity.kind == Entity::Kind::reg && allocation.offsets[entity.index] != kNone)
          function_.registers[std::string(name)] = {entity.type, allocation.offsets[entity.index]};
      });
  }

  /// Arguments of direct calls are copied verbatim, so their sizes must match the callee's.
  void check_calls() {
    const auto check = [&](const Operand &list, const std::vector<ptx::Variable> &formal,
                           const std::string &name, const char *what) {
      if (list.elements.size() != formal.size())
        fail("call of '" + name + "' with " + std::to_string(list.elements.size()) + " " + what +
             ", it has " + std::to_string(formal.size()));
      for (std::size_t i = 0; i < formal.size(); ++i) {
        const Operand &given = list.elements[i];
        if (given.kind == Operand::Kind::symbol && program_.symbols[given.symbol].bytes < formal[i].bytes)
          fail("call of '" + name + "': '" + given.name + "' is smaller than '" + formal[i].name + "'");
      }
    };
    for (const std::uint32_t at : calls_) {
      const Instruction &instruction = function_.code[at];
      line_ = instruction.ptx_line;
      const Operand &target = instruction.operands[1];
      const Function &callee = program_.functions[std::size_t(target.function)];
      if (callee.is_entry)
        fail("kernel '" + target.name + "' cannot be called");
      const ptx::Function &declaration = *names_.sources[std::size_t(target.function)];
      check(instruction.operands[0], declaration.returns, target.name, "returns");
      check(instruction.operands[2], declaration.parameters, target.name, "arguments");
    }
  }

  Program &program_;
  const ModuleNames &names_;
  const ptx::Function &source_;
  Function &function_;
  std::uint32_t index_;
  Scopes scopes_;
  std::vector<VirtualRegister> registers_;
  std::vector<std::uint32_t> calls_; ///< direct calls
  std::vector<std::uint64_t> area_ends_;
  std::uint64_t local_end_ = 0, area_end_ = 0, area_most_ = 0;
  std::size_t targets_ = 0; ///< over all brx.idx
  bool needs_tail_ = false;
  int line_ = 0;
};

} // namespace

bool is_dynamic_shared(const ptx::Variable &variable) {
  return variable.space == StateSpace::shared && variable.is_extern && variable.bytes == 0;
}

void resolve_function(Program &program, const ModuleNames &names, std::uint32_t index) {
  FunctionResolver(program, names, index).resolve();
}

} // namespace ladder::program
