// Names, control flow and kernel layout. Argument: the folder of the .ptx files.
#include "check.h"

#include "program/cfg.h"
#include "program/program.h"

#include <algorithm>
#include <random>
#include <set>

using namespace ladder::program;
using ladder::ptx::Type;

namespace {

const std::string kHeader = ".version 9.0\n.target sm_80\n.address_size 64\n";

std::shared_ptr<const Program> link(const std::string &text) {
  return resolve(ladder::ptx::parse(kHeader + text));
}

/// A kernel with some registers: %r<100>, %rd<100>, %p<100>.
std::shared_ptr<const Program> link_body(const std::string &body) {
  return link(".entry k(.param .u64 out, .param .b32 n)\n{ .reg .b32 %r<100>; .reg .b64 %rd<100>; .reg .pred "
              "%p<100>;\n" +
              body + "\n}\n");
}

bool has_text(const std::exception &error, const std::string &text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

void test_errors() {
  const auto refused = [](const std::string &body, const std::string &why) {
    CHECK_THROWS(link_body(body), LinkError, has_text(error, why) && error.ptx_line() == 6);
  };
  refused("add.u32 %r1, %r2, %x;", "unknown name '%x'");
  refused("add.u32 %r1, %r2, %r100;", "unknown name '%r100'");
  refused("add.u32 %r1, %r2, %r01;", "unknown name '%r01'");
  refused("bra nowhere;", "unknown name 'nowhere'");
  refused("bra %r1;", "not a label");
  refused("bra;", "one label");
  refused("@%r1 bra L; L:", "not a predicate");
  refused("L: L: ret;", "declared twice");
  refused(".reg .b32 %a, %a;", "declared twice");
  refused("call missing, ();", "unknown name");
  refused("call %rd1, (n), nothing;", "not a prototype");
  refused("call 5;", "cannot be called");
  refused("call k, (out, n);", "cannot be called");
  refused("brx.idx %r1, L; L:", "not a list");
  refused("T: .branchtargets %r1; brx.idx %r2, T;", "not a label");
  refused("add.u32 %r1, -%r2, 1;", "negated");
  refused("add.u32 %r1, %r2+4, 1;", "not a variable");
  refused("ld.u32 %r1, [%p1];", "not an address");
  refused("{ .reg .b32 t; } mov.u32 t, 1;", "unknown name 't'");
  refused("{ L: } bra L;", "unknown name 'L'");
  refused(".local .b8 big[2000000000];", "1 GiB");
  CHECK_THROWS(link(".func f(.reg .b32 a) { ret; }"), LinkError, has_text(error, "only .param"));
  CHECK_THROWS(link(".func f() { ret; } .func f() { ret; }"), LinkError, has_text(error, "twice"));
  CHECK_THROWS(link(".global .b32 a; .global .b32 a;"), LinkError, has_text(error, "twice"));
  CHECK_THROWS(link(".func f(.param .b32 a) { ret; } .entry k() { call f; }"), LinkError,
               has_text(error, "arguments"));
  CHECK_THROWS(link(".func f(.param .b64 a) { ret; } .entry k() { .param .b32 x; call f, (x); }"), LinkError,
               has_text(error, "smaller"));
}

// --- control flow
// ----------------------------------------------------------------------------------------------------

/// Post-dominators by definition: can the exit be reached from `from` without `via`?
bool post_dominates(const Graph &successors, const std::vector<std::uint32_t> &exits, std::uint32_t via,
                    std::uint32_t from) {
  if (via == from)
    return true;
  std::vector<bool> seen(successors.size(), false);
  std::vector<std::uint32_t> stack{from};
  seen[from] = true;
  while (!stack.empty()) {
    const std::uint32_t node = stack.back();
    stack.pop_back();
    if (std::find(exits.begin(), exits.end(), node) != exits.end())
      return false;
    for (const std::uint32_t next : successors[node])
      if (next != via && !seen[next]) {
        seen[next] = true;
        stack.push_back(next);
      }
  }
  return true;
}

void test_post_dominators() {
  const std::uint32_t none = kNone;
  //   0 -> 1 -> 3, 0 -> 2 -> 3, 3 -> 4
  CHECK(immediate_post_dominators({{1, 2}, {3}, {3}, {4}, {}}, {4}) ==
        (std::vector<std::uint32_t>{3, 3, 3, 4, none}));
  // A loop 1 <-> 2 with its exit in 1; and one with two exits.
  CHECK(immediate_post_dominators({{1}, {2, 3}, {1}, {}}, {3}) ==
        (std::vector<std::uint32_t>{1, 3, 1, none}));
  CHECK(immediate_post_dominators({{1}, {2, 3}, {1, 3}, {}}, {3}) ==
        (std::vector<std::uint32_t>{1, 3, 3, none}));
  // Two exits; an endless loop.
  CHECK(immediate_post_dominators({{1, 2}, {}, {}}, {1, 2}) ==
        (std::vector<std::uint32_t>{none, none, none}));
  CHECK(immediate_post_dominators({{1}, {2}, {1}}, {}) == (std::vector<std::uint32_t>{1, 2, none}));
  CHECK(immediate_dominators({{1, 2}, {3}, {3}, {1}, {}}, 0) ==
        (std::vector<std::uint32_t>{none, 0, 0, 0, none}));

  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const std::uint32_t count = 2 + random() % 14;
    Graph graph(count);
    for (std::uint32_t node = 0; node + 1 < count; ++node) {
      graph[node].push_back(node + 1); // all reach the exit
      for (std::uint32_t extra = random() % 3; extra > 0; --extra)
        graph[node].push_back(random() % count);
    }
    const std::vector<std::uint32_t> exits{count - 1};
    const auto found = immediate_post_dominators(graph, exits);
    for (std::uint32_t node = 0; node + 1 < count; ++node) {
      // The immediate one post-dominates the node, and all other post-dominators of the node post-dominate
      // it.
      CHECK(found[node] != kNone && found[node] != node && post_dominates(graph, exits, found[node], node));
      for (std::uint32_t other = 0; other < count; ++other)
        if (other != node && post_dominates(graph, exits, other, node))
          CHECK(post_dominates(graph, exits, other, found[node]));
    }
  }
}

/// The opcode at which the i-th divergent branch reconverges, "-" for none.
std::string meets(const std::string &body) {
  const auto program = link_body(body);
  const std::vector<Instruction> &code = program->functions.at(0).code;
  std::string result;
  std::set<std::uint32_t> places;
  for (const Instruction &instruction : code) {
    if (!is_branch(instruction) || (!instruction.guarded && instruction.targets.empty())) {
      CHECK(instruction.reconverge == kNoReconvergence);
      continue;
    }
    result += instruction.reconverge == kNoReconvergence ? "-" : code.at(instruction.reconverge).opcode;
    result += " ";
    places.insert(instruction.reconverge);
  }
  for (std::uint32_t i = 0; i < code.size(); ++i)
    CHECK_EQUAL(code[i].is_reconvergence_point, places.contains(i));
  return result;
}

void test_reconvergence() {
  CHECK_EQUAL(meets("@%p1 bra L; add.u32 %r1, %r1, 1; L: sub.u32 %r1, %r1, 1; ret;"), "sub ");
  CHECK_EQUAL(
      meets(
          "@%p1 bra E; add.u32 %r1, %r1, 1; bra L; E: mul.lo.u32 %r1, %r1, 3; L: sub.u32 %r1, %r1, 1; ret;"),
      "sub ");
  CHECK_EQUAL(meets("L: add.u32 %r1, %r1, 1; @%p1 bra L; sub.u32 %r1, %r1, 1; ret;"), "sub ");
  // break out of a loop in its middle
  CHECK_EQUAL(
      meets(
          "L: add.u32 %r1, %r1, 1; @%p1 bra B; or.b32 %r1, %r1, 1; @%p2 bra L; B: sub.u32 %r1, %r1, 1; ret;"),
      "sub sub ");
  // Nobody waits for lanes that return at once.
  CHECK_EQUAL(meets("@%p1 bra X; add.u32 %r1, %r1, 1; bar.sync 0; X: ret;"), "- ");
  CHECK_EQUAL(
      meets("@%p1 ret; add.u32 %r1, %r1, 1; @%p2 bra L; or.b32 %r1, %r1, 1; L: sub.u32 %r1, %r1, 1; exit;"),
      "sub ");
  // A guarded return and an early exit on one side do not keep the other lanes apart.
  CHECK_EQUAL(meets("@%p1 bra L; @%p2 ret; add.u32 %r1, %r1, 1; L: sub.u32 %r1, %r1, 1; ret;"), "sub ");
  CHECK_EQUAL(meets("@%p1 bra L; @%p2 bra M; trap; M: add.u32 %r1, %r1, 1; L: sub.u32 %r1, %r1, 1; ret;"),
              "sub - ");
  CHECK_EQUAL(
      meets(
          "@%p1 bra L; @%p2 bra M; or.b32 %r1, %r1, 1; ret; M: add.u32 %r1, %r1, 1; L: sub.u32 %r1, %r1, 1; "
          "ret;"),
      "sub - ");
  CHECK_EQUAL(
      meets(
          "T: .branchtargets A, B, C; brx.idx %r1, T; A: add.u32 %r1, %r1, 1; bra C; B: or.b32 %r1, %r1, 1; "
          "C: sub.u32 %r1, %r1, 1; ret;"),
      "sub ");
  // Endless loops.
  CHECK_EQUAL(meets("L: add.u32 %r1, %r1, 1; @%p1 bra M; or.b32 %r1, %r1, 1; M: sub.u32 %r1, %r1, 1; bra L;"),
              "sub ");
  CHECK_EQUAL(meets("L: bra L;"), "");
  CHECK_EQUAL(meets(""), "");
}

void test_tail() {
  const auto opcodes = [](const std::string &body) {
    const auto program = link_body(body);
    std::string result;
    for (const Instruction &instruction : program->functions.at(0).code)
      result += instruction.opcode + " ";
    return result;
  };
  CHECK_EQUAL(opcodes(""), "ret ");
  CHECK_EQUAL(opcodes("ret;"), "ret ");
  CHECK_EQUAL(opcodes("@%p1 ret;"), "ret ret ");
  CHECK_EQUAL(opcodes("add.u32 %r1, %r1, 1;"), "add ret ");
  CHECK_EQUAL(opcodes("bra L; L:"), "bra ret ");
  CHECK_EQUAL(opcodes("L: bra L;"), "bra ");
  CHECK_EQUAL(opcodes("ret; L: "), "ret ret ");
}

// --- scopes and layout
// -----------------------------------------------------------------------------------------------

void test_scopes() {
  const auto program = link_body(R"(
{ .reg .b64 t; mov.u64 t, 1; st.u64 [%rd1], t; bra L; L: }
{ .reg .b32 t; mov.u32 t, 2; { .reg .b16 t; mov.u16 t, 3; } st.u32 [%rd1], t; bra L; L: }
bra M; { { M2: } bra M; } M: ret;)");
  const std::vector<Instruction> &code = program->functions.at(0).code;
  CHECK(code[0].operands[0].reg.type == Type::b64);
  CHECK(code[2].operands[0].target == 3);
  CHECK(code[3].operands[0].reg.type == Type::b32);
  CHECK(code[4].operands[0].reg.type == Type::b16);
  CHECK(code[5].operands[1].reg.type == Type::b32);
  CHECK_EQUAL(code[5].operands[1].reg.offset, code[3].operands[0].reg.offset);
  CHECK_EQUAL(code[6].operands[0].target, 7u);
  CHECK_EQUAL(code[7].operands[0].target, 9u);
  CHECK_EQUAL(code[8].operands[0].target, 9u);
}

void test_parameters_and_calls() {
  const auto program = link(R"(
.global .b32 counter;
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.func (.param .b64 r) f(.param .b32 n, .param .align 16 .b8 s[20]);
.func (.param .b64 r) f(.param .b32 n, .param .align 16 .b8 s[20]) {
  .reg .b32 %r<3>;
  .local .align 8 .b8 depot[20];
  .local .b64 second;
  ld.param.b32 %r2, [s+4];
  st.param.b32 [r+4], %r2;
  st.local.b32 [second], %r2;
}
.alias g, f;
.visible .entry k(.param .b32 n, .param .u64 p) .minnctapersm 3 {
  .reg .b32 %r<10>, %q, %r1<5>;
  .reg .b64 %rd<3>;
  .reg .v4 .f32 %v;
  mov.u32 %r1, %ctaid.y;
  mov.u64 %rd1, counter+4;
  ld.param.u64 %rd2, [p];
  mov.f32 %v.y, 0f3F800000;
  st.v4.f32 [%rd2+16], %v;
  mov.u32 %r14, %envreg3;
  { .param .b32 a; .param .align 16 .b8 b[20]; .param .b64 x; call (x), f, (a, b); }
  { .param .b32 a; .param .b32 x; P: .callprototype (.param .b32 _) _ (.param .b32 _); call (x), %rd1, (a), P; }
  { .param .b64 a; .param .b32 x; call (x), vprintf, (a, a); }
  mov.u64 %rd1, g;
  ret;
}
)");
  CHECK_EQUAL(program->functions.size(), 2u);
  CHECK(program->find("k") == &program->functions[1] && program->find("g") == &program->functions[0]);
  CHECK(program->find("vprintf") == nullptr);
  const Function &f = program->functions[0], &k = program->functions[1];
  CHECK_EQUAL(f.parameters.at(1).offset, 16u);
  CHECK_EQUAL(f.parameters.at(1).bytes, 20u);
  CHECK_EQUAL(f.returns.at(0).offset, 40u);
  CHECK_EQUAL(f.param_area_bytes, 48u);
  CHECK_EQUAL(f.local_bytes, 32u);
  CHECK(f.code[0].operands[1].elements[0].kind == Operand::Kind::parameter);
  CHECK_EQUAL(f.code[0].operands[1].elements[0].offset, 16);
  CHECK_EQUAL(f.code[0].operands[1].offset, 4);
  CHECK_EQUAL(program->symbols[f.code[2].operands[0].elements[0].symbol].offset, 24u);
  CHECK_EQUAL(f.code.back().opcode, "ret");

  CHECK(k.is_entry && k.min_blocks == 3);
  CHECK_EQUAL(k.parameter_bytes, 16u);
  CHECK_EQUAL(k.parameters.at(1).offset, 8u);
  CHECK_EQUAL(k.param_area_bytes, 48u); // of the largest scope
  CHECK(k.code[0].operands[1].kind == Operand::Kind::special &&
        k.code[0].operands[1].special == Special::ctaid_y);
  CHECK_EQUAL(k.code[1].operands[1].offset, 4);
  CHECK_EQUAL(program->symbols[k.code[1].operands[1].symbol].name, "counter");
  CHECK(k.code[4].operands[1].kind == Operand::Kind::vector);
  CHECK_EQUAL(k.code[4].operands[1].elements[1].reg.offset, k.code[3].operands[0].reg.offset);
  CHECK(k.code[5].operands[1].kind == Operand::Kind::integer);
  const Instruction &direct = k.code[6], &indirect = k.code[7], &external = k.code[8];
  CHECK(direct.operands.size() == 3 && direct.operands[1].function == 0);
  CHECK_EQUAL(program->symbols[direct.operands[2].elements[1].symbol].offset, 16u);
  CHECK(indirect.operands.size() == 3 && indirect.operands[1].kind == Operand::Kind::reg);
  CHECK(external.operands[1].function == -1 && external.operands[1].name == "vprintf");
  CHECK(k.code[9].operands[1].kind == Operand::Kind::function && k.code[9].operands[1].function == 0);
}

void test_layout() {
  const auto program = link(R"(
.shared .align 4 .b8 first[6];
.shared .align 128 .b8 unused[4096];
.extern .shared .align 16 .b8 dyn[];
.extern .shared .align 64 .b8 dyn64[];
.func leaf() { .shared .align 8 .b64 own; .reg .b64 %rd; mov.u64 %rd, own; ret; }
.func other() { .reg .b64 %rd; mov.u64 %rd, dyn64; call leaf; ret; }
.entry a() { .reg .b32 %r; ld.shared.b32 %r, [first+4]; mov.u32 %r, dyn; call leaf; ret; }
.entry b() { .reg .b64 %rd; call %rd, (), P; P: .callprototype _ (); ret; }
.entry c() { ret; }
)");
  const auto layout = [&](const char *name) {
    return layout_kernel(*program, program->function_index.at(name));
  };
  const auto index = [&](const std::string &name) {
    for (std::uint32_t i = 0; i < program->symbols.size(); ++i)
      if (program->symbols[i].name == name)
        return i;
    throw std::runtime_error(name);
  };
  const KernelLayout a = layout("a");
  CHECK(a.functions ==
        (std::vector<std::uint32_t>{program->function_index.at("a"), program->function_index.at("leaf")}));
  CHECK_EQUAL(a.static_shared_bytes, 16u);
  CHECK_EQUAL(a.shared_offsets.at(index("first")), 0u);
  CHECK_EQUAL(a.shared_offsets.at(index("own")), 8u);
  CHECK_EQUAL(a.shared_offsets.at(index("dyn")), 16u);
  CHECK_EQUAL(a.dynamic_shared_offset, 16u);
  CHECK(!a.shared_offsets.contains(index("unused")));
  const KernelLayout b = layout("b"); // calls through a register: any function may be the target
  CHECK_EQUAL(b.functions.size(), 3u);
  CHECK_EQUAL(b.static_shared_bytes, 8u);
  CHECK_EQUAL(b.shared_offsets.at(index("dyn64")), 64u);
  CHECK_EQUAL(b.dynamic_shared_offset, 64u);
  const KernelLayout c = layout("c");
  CHECK(c.functions.size() == 1 && c.static_shared_bytes == 0 && c.dynamic_shared_offset == 0);
}

void test_real_texts(const std::string &data) {
  const auto calls = resolve(ladder::ptx::parse(check::read_file(data + "/calls.ptx")));
  const std::uint32_t inlined = calls->function_index.at("_Z7inlined4PairPfi");
  CHECK_EQUAL(calls->functions[inlined].parameter_bytes, 36u);
  CHECK_EQUAL(calls->functions[inlined].max_threads[0], 128u);
  CHECK_EQUAL(layout_kernel(*calls, inlined).functions.size(), 2u);
  CHECK_EQUAL(layout_kernel(*calls, inlined).static_shared_bytes, 32u * 33 * 4);
  CHECK_EQUAL(layout_kernel(*calls, calls->function_index.at("_Z8pointersPii")).functions.size(), 4u);
  const auto assembly = resolve(ladder::ptx::parse(check::read_file(data + "/inline_asm.ptx")));
  CHECK(assembly->functions.at(0).frame_bytes < 4096);
  for (const Instruction &instruction : assembly->functions.at(0).code)
    if (is_branch(instruction) && instruction.guarded)
      CHECK(instruction.reconverge != kNoReconvergence);
}

} // namespace

int main(int, char **arguments) {
  test_errors();
  test_post_dominators();
  test_reconvergence();
  test_tail();
  test_scopes();
  test_parameters_and_calls();
  test_layout();
  test_real_texts(arguments[1]);
  return check::finish("test_program");
}
