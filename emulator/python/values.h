// What the emulator found and counted, as plain values of Python.
#pragma once

#include "machine/fault.h"
#include "machine/gpu.h"
#include "runtime/observe/chunk_places.h"
#include "runtime/observe/counts.h"
#include "runtime/observe/launch_log.h"
#include "runtime/observe/timing.h"
#include "runtime/work/lower_layers.h"

#include <pybind11/pybind11.h>

#include <vector>

namespace ladder::python {

namespace py = pybind11;

py::dict fault_dict(const machine::Fault &fault);
py::dict gpu_dict(const machine::VirtualGpu &gpu);
/// Plain and swizzled addresses.
py::list pairs(const std::vector<runtime::ChunkPlace> &chunks);

// --- of a launch

py::dict total_counts(const runtime::LaunchRecord &record);
py::dict instruction_columns(const runtime::LaunchRecord &record);
py::dict line_columns(const runtime::LaunchRecord &record);
/// The access with the most conflicts, for each instruction that accessed shared memory.
py::dict worst_accesses(const runtime::LaunchRecord &record);
/// By instruction: the operands in shared memory of its first product in the lowest block.
py::dict products(const runtime::LaunchRecord &record);
/// By instruction: its first box in the lowest block.
py::dict boxes(const runtime::LaunchRecord &record);
py::dict copies(const runtime::LaunchRecord &record);

/// Cycles of a launch on one multiprocessor, with (instruction, reason, cycles) of its stalls, and the waits
/// of the first block's warps.
py::dict timed_launch(const runtime::TimedLaunch &launch);

} // namespace ladder::python
