// Register slots: random programs give the same results with one variable per register and with slots shared
// in a warp's frame, whatever the order in which lanes advance.
#include "check.h"

#include "program/cfg.h"
#include "program/program.h"
#include "program/registers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

using namespace ladder::program;
namespace ptx = ladder::ptx;

namespace {

const std::string kHeader = ".version 9.0\n.target sm_80\n.address_size 64\n";

constexpr unsigned kMostSteps = 400; ///< of a lane; programs may loop forever

/// Where a lane's registers are.
class Storage {
public:
  virtual ~Storage() = default;
  virtual std::uint64_t get(unsigned lane, std::size_t at, std::size_t operand) = 0;
  virtual void set(unsigned lane, std::size_t at, std::size_t operand, std::uint64_t value) = 0;
  virtual bool guard(unsigned lane, std::size_t at) = 0;
};

/// A variable for every name.
class NamedStorage : public Storage {
public:
  explicit NamedStorage(const ptx::Function &function) : lanes_(kLanes) {
    for (const ptx::Statement &statement : function.body)
      if (statement.kind == ptx::Statement::Kind::instruction)
        code_.push_back(&statement.instruction);
  }
  std::uint64_t get(unsigned lane, std::size_t at, std::size_t operand) override {
    const ptx::Operand &source = code_[at]->operands[operand];
    return source.kind == ptx::Operand::Kind::integer ? source.bits : lanes_[lane][source.name];
  }
  void set(unsigned lane, std::size_t at, std::size_t operand, std::uint64_t value) override {
    lanes_[lane][code_[at]->operands[operand].name] = value;
  }
  bool guard(unsigned lane, std::size_t at) override { return lanes_[lane][code_[at]->guard->predicate] & 1; }

private:
  std::vector<const ptx::Instruction *> code_;
  std::vector<std::map<std::string, std::uint64_t>> lanes_;
};

/// Slots in a frame, as in the machine.
class FrameStorage : public Storage {
public:
  explicit FrameStorage(const Function &function) : function_(function), frame_(function.frame_bytes, 0) {}
  std::uint64_t get(unsigned lane, std::size_t at, std::size_t operand) override {
    const Operand &source = function_.code[at].operands[operand];
    return source.kind == Operand::Kind::integer ? source.bits : read(lane, source.reg);
  }
  void set(unsigned lane, std::size_t at, std::size_t operand, std::uint64_t value) override {
    const Register &reg = function_.code[at].operands[operand].reg;
    if (const unsigned bytes = lane_bytes(reg.type)) {
      CHECK(reg.offset % 64 == 0 && reg.offset + bytes * kLanes <= frame_.size());
      std::memcpy(&frame_.at(reg.offset + lane * bytes), &value, bytes);
      return;
    }
    CHECK(reg.offset % 4 == 0 && reg.offset + 4 <= frame_.size());
    std::uint32_t mask;
    std::memcpy(&mask, &frame_.at(reg.offset), 4);
    mask = (mask & ~(1u << lane)) | std::uint32_t(value & 1) << lane;
    std::memcpy(&frame_.at(reg.offset), &mask, 4);
  }
  bool guard(unsigned lane, std::size_t at) override { return read(lane, function_.code[at].guard) & 1; }

private:
  std::uint64_t read(unsigned lane, const Register &reg) {
    std::uint64_t value = 0;
    if (const unsigned bytes = lane_bytes(reg.type)) {
      std::memcpy(&value, &frame_.at(reg.offset + lane * bytes), bytes);
      return value;
    }
    std::memcpy(&value, &frame_.at(reg.offset), 4);
    return value >> lane & 1;
  }
  const Function &function_;
  std::vector<std::uint8_t> frame_;
};

/// Runs every lane to its end, in a random order of steps, and returns what each stored.
std::vector<std::vector<std::uint64_t>> run(const Function &function, Storage &storage, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<std::uint64_t>> stored(kLanes);
  std::vector<std::size_t> pc(kLanes, 0);
  std::vector<unsigned> steps(kLanes, 0);
  std::vector<unsigned> running(kLanes);
  for (unsigned lane = 0; lane < kLanes; ++lane)
    running[lane] = lane;
  while (!running.empty()) {
    const std::size_t chosen = random() % running.size();
    const unsigned lane = running[chosen];
    for (unsigned slice = 1 + random() % 8; slice > 0; --slice) {
      const std::size_t at = pc[lane]++;
      const Instruction &instruction = function.code[at];
      const auto in = [&](std::size_t i) { return storage.get(lane, at, i); };
      const auto out = [&](std::uint64_t value) { storage.set(lane, at, 0, value); };
      if (instruction.opcode == "ret" || ++steps[lane] > kMostSteps) {
        running.erase(running.begin() + std::ptrdiff_t(chosen));
        break;
      }
      if (instruction.guarded && storage.guard(lane, at) == instruction.guard_negated)
        continue;
      const std::string name = instruction.full_opcode();
      if (name == "mov.u32")
        out(instruction.operands[1].kind == Operand::Kind::special ? lane * 2654435761u % 97 : in(1));
      else if (name == "add.u32")
        out(std::uint32_t(in(1) + in(2)));
      else if (name == "mul.wide.u32")
        out(in(1) * in(2));
      else if (name == "add.u64")
        out(in(1) + in(2));
      else if (name == "cvt.u32.u64")
        out(std::uint32_t(in(1)));
      else if (name == "setp.lt.u32")
        out(in(1) % 64 < in(2) % 64);
      else if (name == "selp.b32")
        out(in(3) ? in(1) : in(2));
      else if (name == "st.u64" || name == "st.u32") // the address operand holds the value
        stored[lane].push_back(in(0));
      else if (name == "bra")
        pc[lane] = instruction.operands[0].target;
      else
        throw std::runtime_error(name);
    }
  }
  return stored;
}

/// A random program over `registers` names of each kind, with labels and guarded branches both ways.
std::string random_program(std::mt19937 &random, unsigned length, unsigned registers, unsigned branch_every) {
  const auto below = [&](unsigned limit) { return unsigned(random() % limit); };
  unsigned first = 0, window = registers; // registers come and go over the text
  const auto reg = [&](const char *prefix) {
    return prefix + std::to_string((first + below(window)) % registers);
  };
  if (below(4) != 0)
    window = std::min(registers, 1 + below(6));
  std::string text = ".entry k() {\n.reg .b32 %r<" + std::to_string(registers) + ">; .reg .b64 %rd<" +
                     std::to_string(registers) + ">; .reg .pred %p<" + std::to_string(registers) + ">;\n";
  text += "mov.u32 %r0, %laneid;\n";
  const unsigned labels = (length + 11) / 12;
  for (unsigned i = 0; i < length; ++i) {
    first = i * registers / length;
    if (i % 12 == 0)
      text += "L" + std::to_string(i / 12) + ":\n";
    const std::string guard = below(4) == 0 ? std::string("@") + (below(2) ? "!" : "") + reg("%p") + " " : "";
    if (below(branch_every) == 0) {
      text += guard + "bra L" + std::to_string(below(labels)) + ";\n";
      continue;
    }
    text += guard;
    switch (below(9)) {
    case 0:
      text += "mov.u32 " + reg("%r") + ", " + std::to_string(below(1000)) + ";\n";
      break;
    case 1:
      text += "mul.wide.u32 " + reg("%rd") + ", " + reg("%r") + ", " + reg("%r") + ";\n";
      break;
    case 2:
      text += "add.u64 " + reg("%rd") + ", " + reg("%rd") + ", " + reg("%rd") + ";\n";
      break;
    case 3:
      text += "cvt.u32.u64 " + reg("%r") + ", " + reg("%rd") + ";\n";
      break;
    case 4:
    case 5:
      text += "setp.lt.u32 " + reg("%p") + ", " + reg("%r") + ", " + reg("%r") + ";\n";
      break;
    case 6:
      text += "selp.b32 " + reg("%r") + ", " + reg("%r") + ", " + reg("%r") + ", " + reg("%p") + ";\n";
      break;
    case 7:
      text += (below(2) ? "st.u64 " + reg("%rd") : "st.u32 " + reg("%r")) + ", 0;\n";
      break;
    default:
      text += "add.u32 " + reg("%r") + ", " + reg("%r") + ", " + reg("%r") + ";\n";
    }
  }
  return text + "ret; }\n";
}

void test_random_programs() {
  std::mt19937 random(3);
  std::size_t stores = 0;
  std::uint64_t slots = 0, named = 0;
  for (unsigned round = 0; round < 100; ++round) {
    const unsigned registers = 2 + random() % 50;
    const std::string text = random_program(random, 10 + random() % 150, registers, 5 + round % 60);
    const auto program = resolve(ptx::parse(kHeader + text));
    const Function &function = program->functions.at(0);
    NamedStorage with_names(program->module.functions.at(0));
    FrameStorage with_slots(function);
    const auto expected = run(function, with_names, round), actual = run(function, with_slots, round + 1000);
    if (expected != actual)
      check::report(__FILE__, __LINE__, "results differ for\n" + text);
    for (const auto &lane : expected)
      stores += lane.size();
    slots += function.frame_bytes;
    named += registers * (128 + 256 + 4);
  }
  CHECK(stores > 20000);        // the programs do something
  CHECK(slots < named * 3 / 4); // and share slots
}

/// Size of the frame of a kernel with this body.
std::size_t frame_bytes_of(const std::string &body) {
  const auto program = resolve(
      ptx::parse(kHeader + ".entry k() {\n.reg .b32 %r<9000>; .reg .b64 %rd<9000>; .reg .pred %p<9>;\n" +
                 body + "\nret; }\n"));
  return program->functions.at(0).frame_bytes;
}

void test_unrolled_code_stays_small() {
  std::string body = "mov.u32 %r0, 0;\nL:\n";
  for (int i = 1; i < 8000; i += 2) {
    body += "mul.wide.u32 %rd" + std::to_string(i) + ", %r0, %r0;\n";
    body += "ld.u32 %r" + std::to_string(i) + ", [%rd" + std::to_string(i) + "];\n";
    body += "add.u32 %r0, %r0, %r" + std::to_string(i) + ";\n";
  }
  body += "setp.lt.u32 %p1, %r0, 5; @%p1 bra L;";
  CHECK_EQUAL(frame_bytes_of(body), 256u + 2 * 128 + 64);
}

void test_intervals() {
  // Written under a guard in a loop: the lanes' earlier values must survive from the start.
  const std::string guarded =
      "L: mov.u32 %r2, 2; st.u32 [%rd1], %r2; @%p1 mov.u32 %r1, 1; st.u32 [%rd1], %r1; @%p2 bra L;";
  // The same in a scope of its own, where the register is new every time.
  const std::string scoped = "L: mov.u32 %r2, 2; st.u32 [%rd1], %r2; { .reg .b32 t; @%p1 mov.u32 t, 1; "
                             "st.u32 [%rd1], t; } @%p2 bra L;";
  CHECK_EQUAL(frame_bytes_of(guarded), 256u + 2 * 128 + 64);
  CHECK_EQUAL(frame_bytes_of(scoped), 256u + 128 + 64);
  // A destination never shares a slot with a source that dies there.
  CHECK_EQUAL(frame_bytes_of("mov.u32 %r1, 1; add.u32 %r2, %r1, 1; add.u32 %r3, %r2, 1;"), 256u);
  // 64-bit slots never overlap 32-bit ones, dead or not.
  CHECK_EQUAL(frame_bytes_of("mov.u32 %r1, 1; st.u32 [0], %r1; mov.u64 %rd1, 1; st.u64 [0], %rd1;"),
              256u + 128);
  // An unknown opcode may read what it seems to write.
  CHECK_EQUAL(frame_bytes_of("mov.u32 %r1, 1; st.u32 [0], %r1; novel.b32 %r2, 5; st.u32 [0], %r2;"), 256u);
  CHECK_EQUAL(frame_bytes_of(".reg .b128 %q; mov.b128 %q, {%rd1, %rd2}; mov.u64 %rd3, 1;"), 512u + 2 * 256);
  CHECK_EQUAL(frame_bytes_of(""), 0u);
}

} // namespace

int main() {
  test_random_programs();
  test_unrolled_code_stays_small();
  test_intervals();
  return check::finish("test_registers");
}
