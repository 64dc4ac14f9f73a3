// ladder._emulator, the base of ladder/run/emulator/: plain values in and out. The user-facing classes are in
// Python.
#include "python/debugging.h"
#include "python/values.h"

#include "machine/fault.h"
#include "machine/gpu.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/chunk_places.h"
#include "runtime/observe/counts.h"
#include "runtime/observe/host_watch.h"
#include "runtime/observe/launch_log.h"
#include "runtime/observe/shared_access.h"
#include "runtime/observe/timing.h"
#include "runtime/work/device.h"
#include "runtime/work/device_work.h"
#include "runtime/work/fat_binary.h"
#include "runtime/work/liberties.h"
#include "runtime/work/loaded_module.h"
#include "runtime/work/lower_layers.h"

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace py = pybind11;
using namespace ladder;
using namespace ladder::python;
using runtime::Device;

namespace {

/// Address, bytes, name, writable.
using Memory = std::tuple<std::uint64_t, std::uint64_t, std::string, bool>;
using Span = std::pair<std::uint64_t, std::uint64_t>; ///< address, bytes
using Size = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

machine::Dim3 dim(const Size &size) { return {std::get<0>(size), std::get<1>(size), std::get<2>(size)}; }
Size triple(const machine::Dim3 &size) { return {size.x, size.y, size.z}; }

const machine::VirtualGpu &gpu_named(const std::string &arch) {
  const machine::VirtualGpu *gpu = runtime::find_gpu(arch);
  if (!gpu)
    throw std::invalid_argument("there is no virtual GPU " + arch);
  return *gpu;
}

/// Memory that the device may access during this object's lifetime.
class LentMemory {
public:
  explicit LentMemory(const std::vector<Memory> &memory) {
    try {
      for (const auto &[address, bytes, name, writable] : memory) {
        if (bytes == 0)
          continue;
        Device::instance().add_memory({address, address + bytes, writable, name});
        begins_.push_back(address);
      }
    } catch (...) {
      release();
      throw;
    }
  }
  ~LentMemory() { release(); }
  LentMemory(const LentMemory &) = delete;

private:
  void release() {
    for (const std::uint64_t begin : begins_)
      Device::instance().remove_memory(begin);
    begins_.clear();
  }
  std::vector<std::uint64_t> begins_;
};

const char *host_use_name(runtime::HostWatch::Use use) {
  switch (use) {
  case runtime::HostWatch::Use::touched:
    return "touched";
  case runtime::HostWatch::Use::copied_to_host:
    return "copied to the host";
  case runtime::HostWatch::Use::copied_from_host:
    return "copied from the host";
  case runtime::HostWatch::Use::on_another_stream:
    return "on another stream";
  }
  return "";
}

/// A session: a chosen virtual GPU, lent memory, and a launch log.
class Session {
public:
  Session(const std::string &arch, const std::vector<Memory> &memory, unsigned threads,
          std::uint64_t instruction_limit, bool check, bool backwards, std::uint8_t unwritten,
          bool skip_kernels, std::uint64_t first_blocks, std::uint64_t last_blocks, int multiprocessors,
          bool watch_host, const std::vector<Span> &filled, const std::map<std::string, double> &timing,
          const std::vector<std::uint64_t> &blocks)
      : checking_(check ? std::make_unique<runtime::Checking>() : nullptr),
        timing_(timing.empty() ? nullptr : std::make_unique<runtime::Timing>(timing, blocks)),
        lent_(std::make_unique<LentMemory>(memory)), log_(std::make_shared<runtime::LaunchLog>()) {
    Device &device = Device::instance();
    previous_gpu_ = &device.gpu();
    previous_threads_ = device.threads();
    previous_limit_ = device.warp_instruction_limit();
    device.set_gpu(gpu_named(arch));
    device.set_threads(threads);
    device.set_warp_instruction_limit(instruction_limit);
    previous_liberties_ = runtime::set_liberties({.backwards = backwards,
                                                  .unwritten = unwritten,
                                                  .fills_allocations = true,
                                                  .skips_kernels = skip_kernels,
                                                  .first_blocks = first_blocks,
                                                  .last_blocks = last_blocks,
                                                  .multiprocessors = multiprocessors});
    device.reset();
    device.open_log(log_);
    if (checking_)
      for (const auto &[address, bytes, name, writable] : memory)
        if (writable)
          checking_->track_output(address, bytes, name);
    if (watch_host) {
      std::vector<machine::MemoryRange> lent;
      for (const auto &[address, bytes, name, writable] : memory)
        lent.push_back({address, address + bytes, writable, name});
      watch_ = std::make_unique<runtime::HostWatch>(std::move(lent));
    }
    for (const auto &[address, bytes] : filled)
      if (checking_)
        checking_->mark_written(address, bytes);
  }
  ~Session() { end(); }

  void end() {
    if (!lent_)
      return;
    Device &device = Device::instance();
    device.close_log(log_);
    // A fault of the session is in its log; later calls must not fail because of it.
    device.repair();
    device.set_gpu(*previous_gpu_);
    device.set_threads(previous_threads_);
    device.set_warp_instruction_limit(previous_limit_);
    runtime::set_liberties(previous_liberties_);
    if (watch_)
      host_uses_ = watch_->uses();
    watch_.reset();
    lent_.reset();
    if (checking_)
      checking_->finish(), findings_ = checking_->to_json();
    checking_.reset();
    if (timing_)
      timed_ = timing_->launches();
    timing_.reset();
  }
  /// Valid once the session has ended.
  const std::vector<runtime::TimedLaunch> &timed() const { return timed_; }
  const std::vector<runtime::LaunchRecord> &launches() const { return log_->records(); }
  /// Valid once the session has ended.
  const std::string &findings() const { return findings_; }
  const auto &host_uses() const { return host_uses_; }

private:
  std::unique_ptr<runtime::HostWatch> watch_;
  std::set<std::pair<std::string, runtime::HostWatch::Use>> host_uses_;
  std::unique_ptr<runtime::Checking> checking_;
  std::unique_ptr<runtime::Timing> timing_;
  std::vector<runtime::TimedLaunch> timed_;
  std::string findings_ = "[]";
  std::unique_ptr<LentMemory> lent_;
  std::shared_ptr<runtime::LaunchLog> log_;
  const machine::VirtualGpu *previous_gpu_ = nullptr;
  unsigned previous_threads_ = 0;
  std::uint64_t previous_limit_ = 0;
  machine::Liberties previous_liberties_;
};

/// A PTX module with kernels to launch.
class Module {
public:
  Module(const std::string &ptx, const std::string &arch)
      : gpu_(gpu_named(arch)), module_(ptx, gpu_, Device::instance().memory()) {}

  std::vector<std::string> kernels() const { return module_.kernels(); }

  /// Type, bytes and offset of each parameter.
  std::vector<std::tuple<std::string, std::uint32_t, std::uint32_t>>
  parameters(const std::string &kernel) const {
    std::vector<std::tuple<std::string, std::uint32_t, std::uint32_t>> all;
    for (const program::Parameter &parameter : entry(kernel).parameters)
      all.emplace_back(std::string(runtime::type_name(parameter.type)), parameter.bytes, parameter.offset);
    return all;
  }

  std::uint32_t parameter_bytes(const std::string &kernel) const { return entry(kernel).parameter_bytes; }

  void launch(const std::string &kernel, const Size &grid, const Size &block, const std::string &arguments,
              std::uint64_t dynamic_shared_bytes) {
    runtime::LaunchRequest request = request_for(kernel);
    request.grid = dim(grid);
    request.block = dim(block);
    request.dynamic_shared_bytes = dynamic_shared_bytes;
    request.params.assign(arguments.begin(), arguments.end());
    Device::instance().launch(request);
  }

private:
  /// A request without a size.
  runtime::LaunchRequest request_for(const std::string &kernel) {
    runtime::LaunchRequest request;
    request.code = module_.kernel(kernel);
    const std::uint64_t most = gpu_.shared_bytes_per_block_opt_in;
    request.dynamic_shared_limit = most - std::min(most, request.code->layout.dynamic_shared_offset);
    runtime::allow_children(request, [this](const std::string &child) { return request_for(child); });
    return request;
  }

  const program::Function &entry(const std::string &kernel) const {
    const program::Function *found = module_.entry(kernel);
    if (!found)
      throw py::key_error("the module has no kernel " + kernel);
    return *found;
  }

  const machine::VirtualGpu &gpu_;
  runtime::LoadedModule module_;
};

// --- signals

/// An exception that a signal handler raised during a launch; raised again once Python is back in control.
py::object &pending_interrupt() {
  static auto *pending = new py::object;
  return *pending;
}

bool keep_going(std::uint64_t, std::uint64_t) {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0)
    return true;
  const py::error_already_set error;
  pending_interrupt() = error.value();
  return false;
}

void raise_interrupt() {
  const py::object error = std::exchange(pending_interrupt(), py::object());
  if (!error)
    return;
  PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

/// None for an inactive lane.
using OptionalAddresses = std::vector<std::optional<std::uint32_t>>;

std::tuple<machine::LaneAddresses, std::uint32_t> active_addresses(const OptionalAddresses &lanes) {
  if (lanes.size() != 32)
    throw std::invalid_argument("a warp has 32 lanes; there are " + std::to_string(lanes.size()) +
                                " addresses");
  machine::LaneAddresses addresses{};
  std::uint32_t active = 0;
  for (std::size_t lane = 0; lane < 32; ++lane)
    if (lanes[lane]) {
      addresses[lane] = *lanes[lane];
      active |= 1u << lane;
    }
  return {addresses, active};
}

py::tuple shared_access(const std::string &op, unsigned width, const OptionalAddresses &lanes) {
  const auto [addresses, active] = active_addresses(lanes);
  const machine::SharedCost cost = runtime::shared_access(op, width, addresses, active);
  return py::make_tuple(cost.wavefronts, cost.passes, cost.conflicts, cost.ideal);
}

py::list shared_passes(const std::string &op, unsigned width, const OptionalAddresses &lanes) {
  const auto [addresses, active] = active_addresses(lanes);
  py::list all;
  for (const machine::SharedPass &pass : runtime::shared_passes(op, width, addresses, active))
    all.append(py::make_tuple(pass.lanes, pass.wavefronts));
  return all;
}

std::string select_ptx(const py::bytes &container, const std::string &arch) {
  const std::string bytes = container;
  return runtime::select_code(reinterpret_cast<const std::byte *>(bytes.data()), bytes.size(),
                              gpu_named(arch))
      .ptx;
}

} // namespace

PYBIND11_MODULE(_emulator, m) {
  m.doc() = "The emulator, as plain values. Use ladder.emulator.";

  static py::exception<machine::FaultError> fault_error(m, "FaultError", PyExc_RuntimeError);
  static py::exception<ptx::SyntaxError> ptx_error(m, "PtxError", PyExc_ValueError);
  py::register_exception_translator([](std::exception_ptr pointer) {
    const auto raise_ptx = [](int line, const char *text) {
      PyErr_SetObject(ptx_error.ptr(), py::make_tuple(line, text).ptr());
    };
    try {
      if (pointer)
        std::rethrow_exception(pointer);
    } catch (const machine::FaultError &error) {
      PyErr_SetObject(fault_error.ptr(), py::make_tuple(fault_dict(error.fault)).ptr());
    } catch (const ptx::SyntaxError &error) {
      raise_ptx(error.line(), error.what());
    } catch (const program::LinkError &error) {
      raise_ptx(error.ptx_line(), error.what());
    } catch (const runtime::FatBinaryError &error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });

  py::class_<runtime::LaunchRecord>(m, "LaunchRecord")
      .def_readonly("kernel", &runtime::LaunchRecord::kernel)
      .def_readonly("mangled", &runtime::LaunchRecord::mangled)
      .def_readonly("arch", &runtime::LaunchRecord::arch)
      .def_readonly("static_shared_bytes", &runtime::LaunchRecord::static_shared_bytes)
      .def_readonly("dynamic_shared_bytes", &runtime::LaunchRecord::dynamic_shared_bytes)
      .def_property_readonly("grid", [](const runtime::LaunchRecord &r) { return triple(r.grid); })
      .def_property_readonly("block", [](const runtime::LaunchRecord &r) { return triple(r.block); })
      .def("totals", total_counts)
      .def("instructions", instruction_columns)
      .def("lines", line_columns)
      .def("worst_accesses", worst_accesses)
      .def("products", products)
      .def("boxes", boxes)
      .def("copies", copies);

  py::class_<Session>(m, "Session")
      .def(py::init<const std::string &, const std::vector<Memory> &, unsigned, std::uint64_t, bool, bool,
                    std::uint8_t, bool, std::uint64_t, std::uint64_t, int, bool, const std::vector<Span> &,
                    const std::map<std::string, double> &, const std::vector<std::uint64_t> &>(),
           py::arg("arch"), py::arg("memory"), py::arg("threads"), py::arg("instruction_limit"),
           py::arg("check"), py::arg("backwards"), py::arg("unwritten"), py::arg("skip_kernels"),
           py::arg("first_blocks"), py::arg("last_blocks"), py::arg("multiprocessors"), py::arg("watch_host"),
           py::arg("filled"), py::arg("timing"), py::arg("blocks"))
      .def("timed",
           [](const Session &self) {
             py::list all;
             for (const runtime::TimedLaunch &launch : self.timed())
               all.append(timed_launch(launch));
             return all;
           })
      .def("end", &Session::end)
      .def("launches", &Session::launches)
      .def("findings", &Session::findings, "What the sanitizer found, as JSON.")
      .def("host_uses", [](const Session &self) {
        py::list all;
        for (const auto &[name, use] : self.host_uses())
          all.append(py::make_tuple(name, host_use_name(use)));
        return all;
      });

  bind_stepper(m);

  py::class_<Module>(m, "Module")
      .def(py::init<const std::string &, const std::string &>(), py::arg("ptx"), py::arg("arch"))
      .def("kernels", &Module::kernels)
      .def("parameters", &Module::parameters)
      .def("parameter_bytes", &Module::parameter_bytes)
      .def(
          "launch",
          [](Module &self, const std::string &kernel, const Size &grid, const Size &block,
             const py::bytes &arguments, std::uint64_t dynamic_shared_bytes) {
            const std::string bytes = arguments;
            const py::gil_scoped_release released;
            self.launch(kernel, grid, block, bytes, dynamic_shared_bytes);
          },
          py::arg("kernel"), py::arg("grid"), py::arg("block"), py::arg("arguments"),
          py::arg("dynamic_shared_bytes"));

  m.def("last_fault", [] {
    const auto fault = Device::instance().last_fault();
    return fault ? py::object(fault_dict(*fault)) : py::none();
  });
  m.def("raise_interrupt", raise_interrupt,
        "Raises what a signal handler raised during a launch, if it did.");
  m.def("shared_access", shared_access);
  m.def("shared_passes", shared_passes);
  m.def("operand_chunks", [](std::uint64_t descriptor, bool mn_major, std::uint32_t groups) {
    return pairs(runtime::operand_chunks(descriptor, mn_major, groups));
  });
  m.def("box_chunks", [](std::uint32_t address, const std::vector<std::uint32_t> &elements,
                         unsigned element_bytes, unsigned swizzle) {
    return pairs(runtime::box_chunks(address, elements, element_bytes, runtime::swizzle_of(swizzle)));
  });
  m.def("select_ptx", select_ptx);
  m.def(
      "opcode_rows",
      [] {
        py::list rows;
        for (const runtime::OpcodeRow &row : runtime::opcode_rows())
          rows.append(py::make_tuple(row.opcode->form, row.opcode->effect_name, row.is_checked));
        return rows;
      },
      "The table of opcodes: of each row its form, its effect, whether the sanitizer checks it.");
  m.def("bound_opcodes", runtime::bound_opcodes);
  m.def("gpus", [] {
    py::list all;
    for (const machine::VirtualGpu &gpu : runtime::virtual_gpus())
      all.append(gpu_dict(gpu));
    return all;
  });
  py::list counters;
  for (int i = 0; i < runtime::kColumns; ++i)
    if (runtime::is_counter(runtime::Column(i)))
      counters.append(std::string(runtime::column_name(runtime::Column(i))));
  m.attr("counters") = counters;
  m.attr("default_instruction_limit") = runtime::kDefaultWarpInstructionLimit;

  Device::instance().set_tick(keep_going);
}
