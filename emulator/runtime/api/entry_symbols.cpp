// Variables of a module: __device__, __constant__, __managed__.
#include "runtime/work/copies.h"
#include "runtime/work/entry.h"
#include "runtime/work/registry.h"
#include "runtime/work/streams.h"

using namespace ladder::runtime;

namespace {

LoadedModule::Variable find_variable(const void *symbol) {
  const auto registered = Registry::instance().variable(symbol);
  require(registered.has_value(), cudaErrorInvalidSymbol);
  // The PTX lacks variables that device code never uses.
  const auto variable = registered->binary->module(Device::instance().gpu()).variable(registered->name);
  require(variable.has_value(), cudaErrorInvalidSymbol);
  return *variable;
}

char *place(const void *symbol, std::size_t bytes, std::size_t offset) {
  const LoadedModule::Variable variable = find_variable(symbol);
  require(offset <= variable.bytes && bytes <= variable.bytes - offset, cudaErrorInvalidValue,
          "a copy beyond the end of a variable", ladder::sanitizer::Kind::bad_copy);
  return reinterpret_cast<char *>(variable.address) + offset;
}

CopyWork to_symbol(const void *symbol, const void *source, std::size_t bytes, std::size_t offset,
                   cudaMemcpyKind kind) {
  require(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault,
          cudaErrorInvalidMemcpyDirection);
  return copy_work(place(symbol, bytes, offset), source, bytes, kind);
}

CopyWork from_symbol(void *destination, const void *symbol, std::size_t bytes, std::size_t offset,
                     cudaMemcpyKind kind) {
  require(kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault,
          cudaErrorInvalidMemcpyDirection);
  return copy_work(destination, place(symbol, bytes, offset), bytes, kind);
}

} // namespace

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *source, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return on_device([&] { copy(to_symbol(symbol, source, bytes, offset, kind).what); });
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *source, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  const auto work = [&] { return to_symbol(symbol, source, bytes, offset, kind); };
  return on_stream(stream, [&] { copy(work().what); }, work);
}

cudaError_t cudaMemcpyFromSymbol(void *destination, const void *symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  return on_device([&] { copy(from_symbol(destination, symbol, bytes, offset, kind).what); });
}

cudaError_t cudaMemcpyFromSymbolAsync(void *destination, const void *symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  const auto work = [&] { return from_symbol(destination, symbol, bytes, offset, kind); };
  return on_stream(stream, [&] { copy(work().what); }, work);
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  return on_device([&] { set(address, reinterpret_cast<void *>(find_variable(symbol).address)); });
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
  return on_device([&] { set(bytes, find_variable(symbol).bytes); });
}
