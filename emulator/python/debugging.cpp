#include "python/debugging.h"

#include "runtime/observe/checking.h"
#include "runtime/observe/stepper.h"
#include "runtime/work/device.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace ladder::python {

namespace py = pybind11;
using runtime::Stepper;

namespace {

constexpr std::array<std::string_view, 9> kWhys = {"launch", "breakpoint", "step",        "watch", "finding",
                                                   "fault",  "reached",    "interrupted", "end"};
constexpr std::array<std::string_view, 6> kSteps = {"none", "instruction", "into", "over", "out", "barrier"};
constexpr std::array<std::string_view, 5> kStates = {"ready", "barrier", "warp barrier", "event", "join"};

using Size = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
Size triple(const machine::Dim3 &size) { return {size.x, size.y, size.z}; }

Stepper::Step step_named(const std::string &name) {
  for (std::size_t i = 0; i < kSteps.size(); ++i)
    if (kSteps[i] == name)
      return Stepper::Step(i);
  throw std::invalid_argument("there is no step " + name);
}

py::object optional_bytes(const std::optional<std::string> &text) {
  return text ? py::object(py::bytes(*text)) : py::none();
}

/// Block rank, warp, lane, level.
using CallTuple = std::tuple<std::uint32_t, int, int, int>;
Stepper::Call call_of(const CallTuple &call) {
  const auto [rank, warp, lane, level] = call;
  return {rank, warp, lane, level};
}

py::dict launch_dict(const Stepper &self) {
  const machine::LaunchContext &launch = self.launch();
  py::dict d;
  d["kernel"] = self.kernel();
  d["mangled"] = launch.code->kernel;
  d["grid"] = triple(launch.grid);
  d["block"] = triple(launch.block);
  d["cluster"] = triple(launch.cluster);
  d["number"] = self.launches();
  return d;
}

} // namespace

void bind_stepper(py::module_ &m) {
  py::class_<Stepper>(m, "Stepper", "Stops launches for a debugger, and reads what they hold.")
      .def(py::init([](py::function on_stop) {
             return std::make_unique<Stepper>([on_stop = std::move(on_stop)](Stepper::Why why) {
               const py::gil_scoped_acquire gil;
               on_stop(std::string(kWhys[std::size_t(why)]));
             });
           }),
           py::arg("on_stop"))
      .def("attach", [](Stepper &self) { runtime::Device::instance().set_stepper(&self); })
      .def("detach", [](Stepper &) { runtime::Device::instance().set_stepper(nullptr); })
      .def("set_breakpoints", &Stepper::set_breakpoints)
      .def("set_step", [](Stepper &self, const std::string &step, std::uint64_t block, int warp,
                          int lane) { self.set_step(step_named(step), {block, warp, lane}); })
      .def("set_target", &Stepper::set_target)
      .def("set_watches",
           [](Stepper &self,
              const std::vector<std::tuple<bool, std::uint64_t, std::uint64_t, std::uint64_t>> &watches) {
             std::vector<Stepper::Watch> all;
             for (const auto &[is_shared, block, address, bytes] : watches)
               all.push_back({is_shared, block, address, bytes, {}});
             self.set_watches(std::move(all));
           })
      .def("set_stops_at_findings", &Stepper::set_stops_at_findings)
      .def("interrupt", &Stepper::interrupt)
      .def("launch", launch_dict)
      .def(
          "arguments",
          [](const Stepper &self) {
            const std::vector<std::uint8_t> &all = self.launch().params;
            return py::bytes(reinterpret_cast<const char *>(all.data()), all.size());
          },
          "The kernel's argument block.")
      .def("dynamic_shared_bytes", [](const Stepper &self) { return self.launch().dynamic_shared_bytes; })
      .def(
          "memory",
          [](const Stepper &self) {
            py::list all;
            for (const machine::MemoryRange &range : self.memory())
              all.append(py::make_tuple(range.begin, range.end, range.name, range.writable));
            return all;
          },
          "The global memory that kernels may use: begin, end, name, writable.")
      .def("ptx", [](const Stepper &self) { return self.launch().code->program->module.text; })
      .def("number", &Stepper::number)
      .def("fault", &Stepper::fault)
      .def("watched", &Stepper::watched)
      .def("last", &Stepper::last)
      .def("here",
           [](const Stepper &self) {
             machine::Warp *const warp = self.warp();
             return warp ? py::object(py::make_tuple(warp->block().linear_index(),
                                                     warp->block().cluster_rank(), warp->index(),
                                                     warp->path_mask(), self.lanes(), warp->pc()))
                         : py::none();
           })
      .def("warps",
           [](const Stepper &self) {
             py::list all;
             for (const Stepper::WarpAt &warp : self.warps()) {
               py::list paths;
               for (const machine::LanesAt &at : warp.lanes)
                 paths.append(py::make_tuple(at.lanes, at.pc, kStates[std::size_t(at.state)]));
               all.append(py::make_tuple(warp.block, warp.rank, warp.warp, paths));
             }
             return all;
           })
      .def("calls", [](const Stepper &self, const CallTuple &call) { return self.calls(call_of(call)); })
      .def("register", [](const Stepper &self, const CallTuple &call,
                          const std::string &name) { return self.register_values(call_of(call), name); })
      .def("local",
           [](const Stepper &self, const CallTuple &call, const std::string &symbol, std::uint64_t offset,
              std::uint64_t bytes) {
             return optional_bytes(self.local(call_of(call), symbol, offset, bytes));
           })
      .def("parameter",
           [](const Stepper &self, const CallTuple &call, const std::string &name, std::uint64_t offset,
              std::uint64_t bytes) {
             return optional_bytes(self.parameter(call_of(call), name, offset, bytes));
           })
      .def("generic",
           [](const Stepper &self, const CallTuple &call, std::uint64_t address, std::uint64_t bytes) {
             return optional_bytes(self.generic(call_of(call), address, bytes));
           })
      .def("shared", [](const Stepper &self, std::uint32_t rank) { return py::bytes(self.shared(rank)); })
      .def("shared_begin", &Stepper::shared_begin)
      .def("shared_offset", &Stepper::shared_offset)
      .def("mbarriers", &Stepper::mbarriers)
      .def(
          "findings",
          [](const Stepper &) {
            const runtime::Checking *const checking = runtime::Checking::active();
            return checking ? checking->to_json() : std::string("[]");
          },
          "What the sanitizer has found so far, as JSON.")
      .def("instructions", [](const Stepper &self) {
        py::list all;
        for (const Stepper::InstructionRow &row : self.instructions())
          all.append(py::make_tuple(row.function, row.ptx_line, row.ptx, row.positions));
        return all;
      });
}

} // namespace ladder::python
