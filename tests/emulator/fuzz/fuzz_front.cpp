// Fuzzes the readers of untrusted bytes: the PTX parser and resolver, and the fat binary reader. They may
// refuse an input with their own errors; anything else is a bug, which the sanitizers detect.
//
//     fuzz_front ptx|fatbin COUNT SEED FILE...
#include "machine/gpu.h"
#include "mutate.h"
#include "program/program.h"
#include "ptx/ast.h"
#include "ptx/lexer.h"
#include "runtime/observe/machine_code.h"
#include "runtime/work/fat_binary.h"

#include <cstdio>
#include <cstdlib>

using namespace ladder;

namespace {

/// Whether the text was accepted.
bool try_ptx(const std::string &text) {
  try {
    const auto program = program::resolve(ptx::parse(text));
    for (std::uint32_t i = 0; i < program->functions.size(); ++i)
      if (program->functions[i].is_entry)
        program::layout_kernel(*program, i);
    return true;
  } catch (const ptx::SyntaxError &error) {
    if (error.line() < 1)
      std::abort();
  } catch (const program::LinkError &) {
  }
  return false;
}

bool try_fat_binary(const std::string &bytes) {
  // On the heap in exactly this size, so that reads past its end are detected.
  const std::vector<std::byte> exact(reinterpret_cast<const std::byte *>(bytes.data()),
                                     reinterpret_cast<const std::byte *>(bytes.data()) + bytes.size());
  try {
    const auto code = runtime::select_code(exact.data(), exact.size(), *machine::find_gpu("sm_80"));
    runtime::read_machine_accesses(code.cubin);
    return true;
  } catch (const runtime::FatBinaryError &) {
  }
  return false;
}

} // namespace

int main(int count, char **words) {
  if (count < 5) {
    std::fprintf(stderr, "fuzz_front ptx|fatbin COUNT SEED FILE...\n");
    return 2;
  }
  const bool is_ptx = std::string(words[1]) == "ptx";
  const unsigned long long inputs = std::strtoull(words[2], nullptr, 10);
  fuzz::Random random(std::strtoull(words[3], nullptr, 10));
  std::vector<std::string> seeds;
  for (int i = 4; i < count; ++i)
    seeds.push_back(fuzz::read_file(words[i]));
  unsigned long long accepted = 0;
  for (unsigned long long i = 0; i < inputs; ++i) {
    const std::string input = fuzz::mutated(seeds, random);
    accepted += is_ptx ? try_ptx(input) : try_fat_binary(input);
  }
  std::printf("%llu inputs, %llu accepted\n", inputs, accepted);
  return 0;
}
