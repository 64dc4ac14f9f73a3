#include "runtime/observe/launch_log.h"

#include "runtime/observe/counts.h"
#include "runtime/observe/json.h"

#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>

namespace ladder::runtime {

namespace {

std::string triple(const machine::Dim3 &size) {
  return "[" + std::to_string(size.x) + ", " + std::to_string(size.y) + ", " + std::to_string(size.z) + "]";
}

std::string cells(const CountRow &row) {
  std::string text;
  for (int i = 0; i < kColumns; ++i)
    text += (i ? ", " : "") + json_string(column_name(Column(i))) + ": " +
            (row[i] ? std::to_string(*row[i]) : "null");
  return text;
}

std::string fault_json(const machine::Fault &fault) {
  return "{\"kind\": " + json_string(machine::fault_kind_name(fault.kind)) +
         ", \"message\": " + json_string(fault.message) + ", \"kernel\": " + json_string(fault.kernel) +
         ", \"file\": " + json_string(fault.file) + ", \"line\": " + std::to_string(fault.line) +
         ", \"text\": " + json_string(fault.describe()) + "}";
}

std::string record_json(const LaunchRecord &record) {
  const std::string text = "{\"kernel\": " + json_string(record.kernel) +
                           ", \"mangled\": " + json_string(record.mangled) +
                           ", \"grid\": " + triple(record.grid) + ", \"block\": " + triple(record.block) +
                           ", \"static_shared_bytes\": " + std::to_string(record.static_shared_bytes) +
                           ", \"dynamic_shared_bytes\": " + std::to_string(record.dynamic_shared_bytes) +
                           ", \"launches\": " + std::to_string(record.launches) + ",\n   \"totals\": {" +
                           cells(count_all(*record.code, record.counters)) + "},\n   \"lines\": [";
  const auto line = [](const auto &counted) {
    return "\n    {" + place_members(counted.first) + ", " + cells(counted.second) + "}";
  };
  const auto opcode = [](const auto &counted) {
    return "\n    {\"ptx\": " + json_string(counted.first.second) + ", " +
           place_members(counted.first.first) + ", " + cells(counted.second) + "}";
  };
  return text + joined(count_lines(*record.code, record.counters), ",", line) + "],\n   \"opcodes\": [" +
         joined(count_opcodes(*record.code, record.counters), ",", opcode) + "]}";
}

bool same_configuration(const LaunchRecord &a, const LaunchRecord &b) {
  const auto equal = [](const machine::Dim3 &x, const machine::Dim3 &y) {
    return x.x == y.x && x.y == y.y && x.z == y.z;
  };
  return a.code == b.code && equal(a.grid, b.grid) && equal(a.block, b.block) &&
         a.dynamic_shared_bytes == b.dynamic_shared_bytes;
}

} // namespace

std::string demangle(const std::string &mangled) {
  int status = 0;
  char *name = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (status != 0 || !name)
    return mangled;
  std::string text(name);
  std::free(name);
  return text;
}

void LaunchLog::add(LaunchRecord record) {
  if (merge_)
    for (LaunchRecord &known : records_)
      if (same_configuration(known, record)) {
        known.counters += record.counters;
        known.launches += record.launches;
        return;
      }
  records_.push_back(std::move(record));
}

std::string to_json(const LaunchLog &log, const std::string &arch, const std::optional<machine::Fault> &fault,
                    const std::map<std::string, std::uint64_t> &uncounted, const std::string &findings,
                    std::optional<int> returned) {
  const auto record = [](const LaunchRecord &one) { return "\n  " + record_json(one); };
  const auto call = [](const auto &one) {
    return json_string(one.first) + ": " + std::to_string(one.second);
  };
  return "{\"arch\": " + json_string(arch) + ",\n \"fault\": " + (fault ? fault_json(*fault) : "null") +
         ",\n \"returned\": " + (returned ? std::to_string(*returned) : "null") + ",\n \"uncounted\": {" +
         joined(uncounted, ", ", call) + "},\n \"kernels\": [" + joined(log.records(), ",", record) +
         "],\n \"findings\": " + findings + "}\n";
}

} // namespace ladder::runtime
