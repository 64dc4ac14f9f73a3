# Generates from runtime/entry_points.def, the list of the CUDA runtime functions that the emulator implements:
#   entry_points.h   #define cudaMalloc ladder_cudaMalloc ..., included before NVIDIA's headers, so that the
#                    definitions use NVIDIA's own prototypes;
#   forwards.S       hidden functions cudaMalloc ... that jump to ladder_cudaMalloc ... in the shared library.
# And main.cpp, for programs that are linked with --wrap=main: their launch log then says what main returned.
set(ladder_entry_list ${CMAKE_CURRENT_SOURCE_DIR}/runtime/entry_points.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ladder_entry_list})
set(LADDER_GENERATED_DIR ${CMAKE_CURRENT_BINARY_DIR}/generated)
set(LADDER_ENTRY_POINTS_HEADER ${LADDER_GENERATED_DIR}/entry_points.h)
set(LADDER_FORWARDS_SOURCE ${LADDER_GENERATED_DIR}/forwards.S)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(ladder_jump "jmp *ladder_\\target@GOTPCREL(%rip)")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(ladder_jump "b ladder_\\target")
else()
  message(FATAL_ERROR "The emulator runs on x86-64 and aarch64 Linux, not on ${CMAKE_SYSTEM_PROCESSOR}.")
endif()

set(ladder_header "// Generated from runtime/entry_points.def.\n#pragma once\n")
set(ladder_forwards "// Generated from runtime/entry_points.def.
.macro forward name, target
  .globl \\name
  .hidden \\name
  .type \\name, %function
\\name:
  ${ladder_jump}
  .size \\name, . - \\name
.endm
.text
")
file(STRINGS ${ladder_entry_list} ladder_entries REGEX "^[a-z_]")
foreach(entry IN LISTS ladder_entries)
  string(REGEX MATCHALL "[A-Za-z0-9_]+" words "${entry}")
  list(POP_FRONT words name)
  string(APPEND ladder_header "#define ${name} ladder_${name}\n")
  # Further words are the function's names in other compilation modes (per-thread default streams).
  foreach(alias ${name} ${words})
    string(APPEND ladder_forwards "forward ${alias}, ${name}\n")
  endforeach()
endforeach()
string(APPEND ladder_forwards ".section .note.GNU-stack, \"\", %progbits\n")

set(LADDER_MAIN_SOURCE ${LADDER_GENERATED_DIR}/main.cpp)
file(CONFIGURE OUTPUT ${LADDER_MAIN_SOURCE} CONTENT [[
extern "C" {
int __real_main(int, char **, char **);
void ladder_main_returned(int code);
int __wrap_main(int count, char **arguments, char **environment) {
  const int code = __real_main(count, arguments, environment);
  ladder_main_returned(code);
  return code;
}
}
]] @ONLY)
file(CONFIGURE OUTPUT ${LADDER_ENTRY_POINTS_HEADER} CONTENT "${ladder_header}" @ONLY)
file(CONFIGURE OUTPUT ${LADDER_FORWARDS_SOURCE} CONTENT "${ladder_forwards}" @ONLY)
