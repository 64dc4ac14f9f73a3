#include "python/values.h"

#include <pybind11/stl.h>

#include <array>
#include <string>
#include <tuple>

namespace ladder::python {

py::dict fault_dict(const machine::Fault &fault) {
  py::dict d;
  d["kind"] = runtime::fault_kind_name(fault.kind);
  d["message"] = fault.message;
  d["kernel"] = fault.kernel;
  d["block"] = std::tuple(fault.block[0], fault.block[1], fault.block[2]);
  d["warp"] = fault.warp;
  d["lane"] = fault.lane;
  d["thread"] = std::tuple(fault.thread[0], fault.thread[1], fault.thread[2]);
  d["address"] = fault.has_address ? py::cast(fault.address) : py::none();
  d["opcode"] = fault.opcode;
  d["file"] = fault.file;
  d["line"] = fault.line;
  d["kernel_file"] = fault.kernel_file;
  d["kernel_line"] = fault.kernel_line;
  d["own_line"] = fault.own_line;
  d["ptx_line"] = fault.ptx_line;
  d["text"] = runtime::describe(fault);
  return d;
}

namespace {

/// Lists, by column name.
class Columns {
public:
  void add(const runtime::CountRow &row) {
    for (int i = 0; i < runtime::kColumns; ++i)
      columns_[std::size_t(i)].append(row[std::size_t(i)] ? py::cast(*row[std::size_t(i)]) : py::none());
  }
  void add(const runtime::SourcePlace &place) {
    file_.append(place.file);
    line_.append(place.line);
    kernel_file_.append(place.kernel_file);
    kernel_line_.append(place.kernel_line);
    own_line_.append(place.own_line);
  }
  void put_places(py::dict &into) const {
    into["file"] = file_;
    into["line"] = line_;
    into["kernel_file"] = kernel_file_;
    into["kernel_line"] = kernel_line_;
    into["own_line"] = own_line_;
  }
  void put_counts(py::dict &into) const {
    for (int i = 0; i < runtime::kColumns; ++i)
      into[py::str(std::string(runtime::column_name(runtime::Column(i))))] = columns_[std::size_t(i)];
  }

private:
  std::array<py::list, runtime::kColumns> columns_;
  py::list file_, line_, kernel_file_, kernel_line_, own_line_;
};

} // namespace

py::dict total_counts(const runtime::LaunchRecord &record) {
  const runtime::CountRow row = runtime::count_all(*record.code, record.counters);
  py::dict d;
  for (int i = 0; i < runtime::kColumns; ++i)
    d[py::str(std::string(runtime::column_name(runtime::Column(i))))] =
        row[std::size_t(i)] ? py::cast(*row[std::size_t(i)]) : py::none();
  return d;
}

py::dict instruction_columns(const runtime::LaunchRecord &record) {
  const machine::Code &code = *record.code;
  Columns columns;
  py::list index, ptx_line;
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    index.append(i);
    ptx_line.append(code.sources[i] ? code.sources[i]->ptx_line : 0);
    columns.add(runtime::source_place(code, i));
    columns.add(runtime::count_instruction(code, record.counters, i));
  }
  py::dict d;
  d["index"] = index;
  d["ptx"] = runtime::ptx_texts(code);
  d["ptx_line"] = ptx_line;
  columns.put_places(d);
  columns.put_counts(d);
  return d;
}

py::dict line_columns(const runtime::LaunchRecord &record) {
  Columns columns;
  for (const auto &[place, row] : runtime::count_lines(*record.code, record.counters)) {
    columns.add(place);
    columns.add(row);
  }
  py::dict d;
  columns.put_places(d);
  columns.put_counts(d);
  return d;
}

namespace {

const char *op_name(machine::SharedCostCache::Op op) {
  using Op = machine::SharedCostCache::Op;
  switch (op) {
  case Op::load:
    return "ld";
  case Op::store:
    return "st";
  case Op::matrix:
    return "matrix";
  case Op::atomic:
    return "atom.add";
  case Op::compare_and_swap:
    return "atom.cas";
  }
  return "";
}

} // namespace

py::dict worst_accesses(const runtime::LaunchRecord &record) {
  py::dict all;
  for (const auto &[instruction, access] : record.counters.worst) {
    const program::Instruction *source = record.code->sources[instruction];
    const bool is_matrix = access.op == machine::SharedCostCache::Op::matrix;
    py::list addresses;
    for (int lane = 0; lane < 32; ++lane)
      addresses.append(access.active >> lane & 1 ? py::cast(access.addresses[std::size_t(lane)])
                                                 : py::none());
    py::dict d;
    d["op"] = is_matrix && source ? source->opcode : std::string(op_name(access.op));
    d["width"] = access.width;
    d["addresses"] = addresses;
    d["wavefronts"] = access.cost.wavefronts;
    d["passes"] = access.cost.passes;
    d["conflicts"] = access.cost.conflicts;
    d["ideal"] = access.cost.ideal;
    d["block"] = access.block;
    d["warp"] = access.warp;
    all[py::int_(instruction)] = d;
  }
  return all;
}

namespace {

py::object operand_tuple(const machine::ProductOperands::Operand &operand) {
  return py::make_tuple(operand.descriptor, operand.mn_major, operand.groups);
}

} // namespace

py::dict products(const runtime::LaunchRecord &record) {
  py::dict all;
  for (const auto &[instruction, product] : record.counters.products) {
    py::dict d;
    d["a"] = product.a ? operand_tuple(*product.a) : py::none();
    d["b"] = operand_tuple(product.b);
    d["block"] = product.block;
    d["warp"] = product.warp;
    all[py::int_(instruction)] = d;
  }
  return all;
}

namespace {

unsigned swizzle_bytes(machine::Swizzle swizzle) {
  return swizzle == machine::Swizzle::none ? 0 : machine::swizzle_span(swizzle);
}

} // namespace

py::dict boxes(const runtime::LaunchRecord &record) {
  py::dict all;
  for (const auto &[instruction, box] : record.counters.boxes) {
    py::dict d;
    d["address"] = box.address;
    d["elements"] = box.elements;
    d["element_bytes"] = box.element_bytes;
    d["swizzle"] = swizzle_bytes(box.swizzle);
    d["coordinates"] = box.coordinates;
    d["block"] = box.block;
    d["warp"] = box.warp;
    all[py::int_(instruction)] = d;
  }
  return all;
}

py::dict copies(const runtime::LaunchRecord &record) {
  py::dict all;
  for (const auto &[instruction, copies] : record.counters.copies)
    all[py::int_(instruction)] = py::make_tuple(copies.count, copies.places.size());
  return all;
}

py::list pairs(const std::vector<runtime::ChunkPlace> &chunks) {
  py::list all;
  for (const runtime::ChunkPlace &chunk : chunks)
    all.append(py::make_tuple(chunk.plain, chunk.address));
  return all;
}

py::dict gpu_dict(const machine::VirtualGpu &gpu) {
  py::dict d;
  d["arch"] = gpu.arch;
  d["name"] = gpu.name;
  d["multiprocessors"] = gpu.multiprocessors;
  d["shared_bytes_per_block"] = gpu.shared_bytes_per_block;
  d["shared_bytes_per_block_opt_in"] = gpu.shared_bytes_per_block_opt_in;
  d["shared_bytes_per_multiprocessor"] = gpu.shared_bytes_per_multiprocessor;
  d["max_threads_per_multiprocessor"] = gpu.max_threads_per_multiprocessor;
  d["max_blocks_per_multiprocessor"] = gpu.max_blocks_per_multiprocessor;
  d["registers_per_multiprocessor"] = gpu.registers_per_multiprocessor;
  return d;
}

py::dict timed_launch(const runtime::TimedLaunch &launch) {
  py::list stalls, waits;
  for (const auto &[key, cycles] : launch.replayed.stalls)
    stalls.append(py::make_tuple(key.first, std::string(runtime::stall_name(key.second)), cycles));
  for (const timing::Wait &wait : launch.replayed.waits)
    waits.append(py::make_tuple(wait.warp, wait.begin, wait.end, std::string(runtime::stall_name(wait.stall)),
                                wait.pc));
  py::dict dict;
  dict["registers"] = launch.registers;
  dict["resident"] = launch.resident;
  dict["blocks"] = launch.blocks;
  dict["cycles"] = launch.replayed.cycles;
  dict["first_cycles"] = launch.first_cycles;
  dict["instructions"] = launch.replayed.instructions;
  dict["unknown"] = launch.unknown;
  dict["stalls"] = stalls;
  dict["waits"] = waits;
  return dict;
}

} // namespace ladder::python
