// Lexer, parser and debug lines. Argument: the folder of the .ptx files.
#include "check.h"

#include "ptx/ast.h"
#include "ptx/debug_lines.h"
#include "ptx/lexer.h"

#include <bit>

using namespace ladder::ptx;

namespace {

const std::string kHeader = ".version 9.0\n.target sm_80\n.address_size 64\n";

Module parse_body(const std::string &body) {
  return parse(kHeader + ".visible .entry k()\n{\n" + body + "\n}\n");
}

Instruction parse_instruction(const std::string &text) {
  return parse_body(text).functions.at(0).body.at(0).instruction;
}

Variable parse_variable(const std::string &text) { return parse(kHeader + text).variables.at(0); }

std::uint64_t bits_of(const std::string &constant) {
  return parse_instruction("mov.b64 %r, " + constant + ";").operands.at(1).bits;
}

bool has_text(const std::exception &error, const char *text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

void test_lexer() {
  Lexer lexer("ld.global.L2::128B\t%r1 /* a\nb */ 0x1F // c\n_ $L_1:");
  const auto next = [&](TokenKind kind, const char *text, int line) {
    const Token token = lexer.next();
    CHECK(token.kind == kind);
    CHECK_EQUAL(token.text, text);
    CHECK_EQUAL(token.line, line);
  };
  next(TokenKind::identifier, "ld", 1);
  next(TokenKind::directive, "global", 1);
  next(TokenKind::directive, "L2::128B", 1);
  next(TokenKind::identifier, "%r1", 1);
  next(TokenKind::integer, "0x1F", 2);
  next(TokenKind::identifier, "_", 3);
  next(TokenKind::identifier, "$L_1", 3);
  next(TokenKind::punctuation, ":", 3);
  next(TokenKind::end, "", 3);
  next(TokenKind::end, "", 3);
}

void test_constants() {
  CHECK_EQUAL(bits_of("0x10"), 16u);
  CHECK_EQUAL(bits_of("010"), 8u);
  CHECK_EQUAL(bits_of("0b101"), 5u);
  CHECK_EQUAL(bits_of("7U"), 7u);
  CHECK_EQUAL(bits_of("-1"), ~std::uint64_t(0));
  CHECK_EQUAL(bits_of("0xFFFFFFFFFFFFFFFF"), ~std::uint64_t(0));
  CHECK_EQUAL(bits_of("WARP_SZ"), 32u);
  CHECK_EQUAL(bits_of("(1 + 2) * 3 << 2"), 36u);
  CHECK_EQUAL(bits_of("-7 / 2"), std::uint64_t(-3));
  CHECK_EQUAL(bits_of("-8 >> 1"), std::uint64_t(-4));
  CHECK_EQUAL(bits_of("(.u64)-8 >> 1"), std::uint64_t(-8) >> 1);
  CHECK_EQUAL(bits_of("1 ? 2 : 3"), 2u);
  CHECK_EQUAL(bits_of("!0 + ~0"), 0u);
  CHECK_EQUAL(bits_of("3 < 4 && 4 >= 5 || 1 == 1"), 1u);
  CHECK_EQUAL(bits_of("(-9223372036854775807 - 1) / -1"), std::uint64_t(1) << 63);
  CHECK_EQUAL(bits_of("0f3F800000"), 0x3F800000u);
  CHECK_EQUAL(bits_of("-0f3F800000"), 0xBF800000u);
  CHECK_EQUAL(bits_of("0d3FF0000000000000"), 0x3FF0000000000000u);
  CHECK_EQUAL(bits_of("1.5"), std::bit_cast<std::uint64_t>(1.5));
  CHECK_EQUAL(bits_of("-1.5e-3"), std::bit_cast<std::uint64_t>(-1.5e-3));
  for (const char *wrong : {"0f3F8000", "0x", "08", "0b2", "12ab", "18446744073709551616", "1 / 0", "1 % 0",
                            "~1.5", "(1", "1e999", "0d3FF", "+"})
    CHECK_THROWS(bits_of(wrong), SyntaxError, error.line() == 6);
  CHECK_THROWS(bits_of(std::string(100000, '(')), SyntaxError, has_text(error, "too deeply"));
  CHECK_THROWS(bits_of(std::string(100000, '~') + "1"), SyntaxError, has_text(error, "too deeply"));
}

void test_operands() {
  const Instruction mma = parse_instruction(
      "@!%p1 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1}, {%r2}, {_, %f2};");
  CHECK_EQUAL(mma.full_opcode(), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
  CHECK(mma.guard && mma.guard->negated && mma.guard->predicate == "%p1");
  CHECK_EQUAL(mma.ptx_line, 6);
  CHECK_EQUAL(mma.operands.size(), 4u);
  CHECK(mma.operands[0].kind == Operand::Kind::vector);
  CHECK_EQUAL(mma.operands[0].elements[1].name, "%f2");
  CHECK(mma.operands[3].elements[0].kind == Operand::Kind::sink);

  const Instruction setp = parse_instruction("setp.eq.and.s32 %p1|%p2, %r1, -4, !%p3;");
  CHECK(setp.operands[0].kind == Operand::Kind::pair);
  CHECK_EQUAL(setp.operands[0].elements[1].name, "%p2");
  CHECK_EQUAL(std::int64_t(setp.operands[2].bits), -4);
  CHECK(setp.operands[3].negated && setp.operands[3].name == "%p3");

  const auto address = [](const std::string &text) {
    return parse_instruction("ld.shared::cta.u32 %r1, " + text + ";").operands.at(1);
  };
  CHECK_EQUAL(address("[%rd1]").elements[0].name, "%rd1");
  CHECK_EQUAL(address("[%rd1+16]").offset, 16);
  CHECK_EQUAL(address("[%rd1+-16]").offset, -16);
  CHECK_EQUAL(address("[%rd1-16]").offset, -16);
  CHECK_EQUAL(address("[table + 4 * 2]").offset, 8);
  CHECK(address("[16]").elements[0].kind == Operand::Kind::integer);
  CHECK_EQUAL(address("[16 + 4]").elements[0].bits, 20u);
  const Operand tensor = address("[%rd1, {%r1, %r2}]");
  CHECK_EQUAL(tensor.elements.size(), 2u);
  CHECK_EQUAL(tensor.elements[1].elements[1].name, "%r2");

  CHECK_EQUAL(parse_instruction("mov.u32 %r1, %tid.x;").operands[1].name, "%tid.x");
  CHECK_EQUAL(parse_instruction("mov.u64 %r1, name+8;").operands[1].offset, 8);
  CHECK_EQUAL(
      parse_instruction("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], 4, [c];")
          .modifiers.at(4),
      "mbarrier::complete_tx::bytes");

  const Instruction call =
      parse_instruction("call.uni (retval0), \n_Z4facti, \n(\nparam0, \nparam1\n)\n, proto;");
  CHECK_EQUAL(call.operands.size(), 4u);
  CHECK(call.operands[0].kind == Operand::Kind::list && call.operands[2].elements.size() == 2);
  CHECK(parse_instruction("call f, ();").operands[1].elements.empty());
  CHECK(parse_instruction("ret;").operands.empty());

  for (const char *wrong : {"add.s32 %r1, ;", "ld.u32 %r1, [%rd1;", "mov.b32 {%r1, %r2;", "add.s32 %r1 %r2;",
                            "@%p1;", "ld.u32 %r1, [];", "mov.u32 %r1, %r2", "ld.u32 %r1, [1.5];"})
    CHECK_THROWS(parse_instruction(wrong), SyntaxError, error.line() == 6 || error.line() == 7);
  for (const std::string open : {"[", "{"}) {
    std::string deep = "mov.u32 ";
    for (int i = 0; i < 100000; ++i)
      deep += open;
    CHECK_THROWS(parse_instruction(deep), SyntaxError, has_text(error, "too deeply"));
  }
}

void test_variables() {
  const Variable array =
      parse_variable(".visible .global .align 16 .f32 a[2][3] = {{1.0, 0f40000000}, {3, 4, 5}};");
  CHECK_EQUAL(array.bytes, 24u);
  CHECK_EQUAL(array.alignment, 16u);
  CHECK_EQUAL(array.initial.size(), 24u);
  const auto word = [](const Variable &variable, std::size_t index) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value |= std::uint32_t(variable.initial.at(4 * index + i)) << (8 * i);
    return value;
  };
  CHECK_EQUAL(word(array, 0), 0x3F800000u);
  CHECK_EQUAL(word(array, 1), 0x40000000u);
  CHECK_EQUAL(word(array, 2), 0u);
  CHECK_EQUAL(word(array, 3), 0x40400000u);

  CHECK_EQUAL(parse_variable(".const .b8 c[] = {1, 2, 3};").bytes, 3u);
  CHECK_EQUAL(parse_variable(".const .b8 c[][4] = {{1}, {2, 3}};").bytes, 8u);
  CHECK_EQUAL(parse_variable(".global .v4 .f32 v;").bytes, 16u);
  CHECK_EQUAL(parse_variable(".global .v4 .f32 v;").alignment, 16u);
  CHECK_EQUAL(word(parse_variable(".global .v2 .u32 v[2] = {{1, 2}, {3, 4}};"), 2), 3u);
  CHECK_EQUAL(word(parse_variable(".global .s32 x = -1;"), 0), 0xFFFFFFFFu);
  CHECK_EQUAL(parse_variable(".global .f64 x = 1;").initial.at(7), 0x3F);
  CHECK_EQUAL(parse_variable(".global .attribute(.managed, .unified(1, 2)) .align 4 .u32 m;").bytes, 4u);
  CHECK_EQUAL(parse(kHeader + ".global .u32 a, b[4];").variables.size(), 2u);
  const Variable dynamic = parse_variable(".extern .shared .align 16 .b8 dyn[];");
  CHECK(dynamic.is_extern && dynamic.bytes == 0 && dynamic.space == StateSpace::shared);

  const Variable pointers = parse_variable(".global .u64 p[5] = {f, generic(a)+12, a-4, generic(a+4), 0};");
  CHECK_EQUAL(pointers.relocations.size(), 4u);
  CHECK_EQUAL(pointers.relocations[1].offset, 8u);
  CHECK_EQUAL(pointers.relocations[1].addend, 12);
  CHECK(pointers.relocations[1].generic && !pointers.relocations[0].generic);
  CHECK_EQUAL(pointers.relocations[2].addend, -4);
  CHECK_EQUAL(pointers.relocations[3].addend, 4);
  const Variable bytes = parse_variable(".global .b8 p[2] = {0xFF(a), 0xFF00(a+4)};");
  CHECK_EQUAL(bytes.relocations[1].mask, 0xFF00u);
  CHECK_EQUAL(bytes.relocations[1].bytes, 1u);
  CHECK_EQUAL(bytes.relocations[1].addend, 4);

  for (const char *wrong :
       {".global .b32 a[2] = {1, 2, 3};", ".global .b32 a[2] = {{1}};",
        ".global .b32 a[4294967296][4294967296];", ".global .b8 a[1000000000000] = {1};",
        ".global .align 3 .b8 a;", ".global a;", ".global .b32 a[2][];", ".extern .global .b32 a = 1;",
        ".shared .b32 a = 1;", ".global .pred p;", ".global .b8 x = 1.5;", ".global .b64 x = 0(a);",
        ".reg .b32 %r;", ".global .b32 a[0] = {1};"})
    CHECK_THROWS(parse_variable(wrong), SyntaxError, error.line() == 4);
  CHECK_THROWS(parse_variable(".global .b32 a[1] = " + std::string(100000, '{')), SyntaxError,
               error.line() == 4);
}

void test_functions() {
  const Module module = parse(kHeader + R"(
.extern .func (.param .b32 func_retval0) vprintf (.param .b64 a, .param .b64 b) ;
.func (.param .align 8 .b8 r[24]) f(.param .align 8 .b8 s[24], .param .b32 n) .noreturn { ret; }
.alias g, f;
.visible .entry k(
  .param .u64 .ptr .global .align 16 p,
  .param .align 8 .b8 s[24]
)
.maxntid 128, 2, 1
.reqntid 64
.minnctapersm 2
.maxnreg 40
.explicitcluster
.reqnctapercluster 2, 1, 1
{
  .reg .pred %p<3>;
  .reg .v2 .f32 %v;
  .reg .b32 %a, %b<4>;
  .pragma "nounroll", "frequency 2";
  .shared .align 4 .b8 tile[64];
  ts: .branchtargets L1, L2;
  proto: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[24]) .noreturn;
L1:
L2: { ; }
  ret;
}
.file 1 "a.cu", 12, 34
.section .debug_info { .b32 .debug_abbrev .b64 $L-$M }
)");
  CHECK_EQUAL(module.version_major, 9);
  CHECK_EQUAL(module.target, "sm_80");
  CHECK_EQUAL(module.files.at(1), "a.cu");
  CHECK_EQUAL(module.functions.size(), 3u);
  CHECK_EQUAL(module.aliases.at(0).first, "g");
  CHECK(module.functions[0].is_declaration && !module.functions[1].is_declaration &&
        module.functions[1].no_return);
  CHECK_EQUAL(module.functions[1].returns.at(0).bytes, 24u);
  const Function &k = module.functions[2];
  CHECK(k.is_entry && k.explicit_cluster);
  CHECK_EQUAL(k.parameters.at(0).alignment, 8u);
  CHECK_EQUAL(k.max_threads[1], 2u);
  CHECK_EQUAL(k.required_threads[0], 64u);
  CHECK_EQUAL(k.required_threads[2], 1u);
  CHECK_EQUAL(k.min_blocks, 2u);
  CHECK_EQUAL(k.required_cluster[0], 2u);
  std::vector<Statement::Kind> kinds;
  for (const Statement &statement : k.body)
    kinds.push_back(statement.kind);
  using K = Statement::Kind;
  CHECK(kinds == (std::vector<K>{K::registers, K::registers, K::registers, K::registers, K::variable,
                                 K::branch_targets, K::prototype, K::label, K::label, K::open_scope,
                                 K::close_scope, K::instruction}));
  CHECK_EQUAL(k.body[0].count, 3u);
  CHECK_EQUAL(k.body[1].vector_width, 2u);
  CHECK_EQUAL(k.body[5].targets.at(1), "L2");
  CHECK_EQUAL(k.body[6].parameters.at(1).bytes, 24u);

  CHECK_THROWS(parse(kHeader + ".entry k() { " + std::string(100000, '{')), SyntaxError,
               has_text(error, "too deeply"));
  CHECK_THROWS(parse(kHeader + ".entry k() {\n\n"), SyntaxError, error.line() == 6);
  CHECK_THROWS(parse(kHeader + ".entry k() { /* "), SyntaxError, has_text(error, "not closed"));
  CHECK_THROWS(parse(kHeader + ".file 1 \"a"), SyntaxError, has_text(error, "not closed"));
  CHECK_THROWS(parse(kHeader + ".section .debug_str {\n.b8 1"), SyntaxError, has_text(error, "not closed"));
  CHECK_THROWS(parse("\x80\xff"), SyntaxError, has_text(error, "'\\x80'"));
  CHECK_THROWS(parse(kHeader + "hello"), SyntaxError, has_text(error, "found 'hello'"));
  CHECK(parse("").functions.empty());
}

LocDirective loc(int line, int at_line = 0, std::string_view label = {}) {
  LocDirective result;
  result.file = result.at_file = 1;
  result.line = line;
  result.function_label = label;
  result.is_inlined = at_line > 0;
  result.at_line = at_line;
  return result;
}

void test_loc_chains(const std::string &data) {
  const Module module = parse(check::read_file(data + "/calls.ptx"));
  const SourceLocation *fma = nullptr;
  for (const Function &function : module.functions)
    for (const Statement &statement : function.body)
      if (statement.instruction.opcode == "fma" && !fma)
        fma = &module.locations.at(std::size_t(statement.instruction.location));
  CHECK(fma != nullptr);
  if (!fma)
    return;
  // square() in twice() in the kernel.
  CHECK_EQUAL(fma->chain.size(), 3u);
  CHECK_EQUAL(module.files.at(fma->chain[0].file), "calls.cu");
  CHECK_EQUAL(fma->chain[0].line, 29);
  CHECK_EQUAL(fma->chain[0].function, "_Z6squaref");
  CHECK_EQUAL(fma->chain[1].line, 30);
  CHECK_EQUAL(fma->chain[1].function, "_Z5twicef");
  CHECK_EQUAL(fma->chain[2].line, 38);
  CHECK_EQUAL(fma->chain[2].function, "");

  DebugLines lines;
  lines.begin_function();
  lines.add(loc(10));
  const int first = lines.add(loc(5, 10, "f"));
  const int nested = lines.add(loc(3, 5, "g"));
  lines.add(loc(11));
  lines.add(loc(5, 11, "f"));
  const int nested_again = lines.add(loc(3, 5, "g")); // the latest call counts
  const int own_place = lines.add(loc(7, 7, "h"));    // helper and call at the same place
  CHECK_EQUAL(lines.add(loc(7, 7, "h")), own_place);  // and the chain does not grow
  const int unknown = lines.add(loc(8, 99, "i"));     // a call that no .loc has described
  CHECK_EQUAL(lines.add(loc(10)), 0);                 // equal ones are one
  CHECK_EQUAL(lines.add(loc(3, 5, "g")), nested_again);
  CHECK_EQUAL(lines.add(loc(0)), nested_again); // an unknown line: the previous one
  CHECK_EQUAL(lines.add(loc(3)), nested_again); // and back to it, without inlined_at
  CHECK_EQUAL(lines.add(loc(0, 10, "g")), 0);   // an unknown line of a known call
  lines.begin_function();
  CHECK_EQUAL(lines.add(loc(0)), -1);
  const int other_function = lines.add(loc(3, 5, "g"));
  lines.add_label("f");
  lines.add_bytes(0x0066, 2);
  lines.add_label("g");
  lines.add_bytes('g', 1);
  const std::vector<SourceLocation> locations = lines.finish();
  const auto text = [&](int index) {
    std::string result;
    for (const SourcePosition &position : locations.at(std::size_t(index)).chain)
      result += std::to_string(position.line) + position.function + " ";
    return result;
  };
  CHECK_EQUAL(text(first), "5f 10 ");
  CHECK_EQUAL(text(nested), "3g 5f 10 ");
  CHECK_EQUAL(text(nested_again), "3g 5f 11 ");
  CHECK_EQUAL(text(own_place), "7 7 ");
  CHECK_EQUAL(text(unknown), "8 99 ");
  CHECK_EQUAL(text(other_function), "3g 5 ");
}

} // namespace

int main(int, char **arguments) {
  const std::string data = arguments[1];
  test_lexer();
  test_constants();
  test_operands();
  test_variables();
  test_functions();
  test_loc_chains(data);
  return check::finish("test_ptx");
}
