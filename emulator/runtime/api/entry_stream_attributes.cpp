// Attributes of streams, and the L2 cache that they may reserve: kept for whoever asks, without effect.
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <map>
#include <mutex>
#include <utility>

using namespace ladder::runtime;

namespace {

struct Attributes {
  std::mutex mutex;
  std::map<std::pair<StreamId, cudaStreamAttrID>, cudaStreamAttrValue> values;
};
// Never destroyed, as streams are.
auto &attributes = *new Attributes;

} // namespace

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID id,
                                   const cudaStreamAttrValue *value) {
  return on_device([&] {
    require(value);
    const StreamId number = stream_id(stream);
    const std::lock_guard lock(attributes.mutex);
    attributes.values[{number, id}] = *value;
  });
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID id, cudaStreamAttrValue *value) {
  return on_device([&] {
    require(value);
    const StreamId number = stream_id(stream);
    const std::lock_guard lock(attributes.mutex);
    const auto found = attributes.values.find({number, id});
    *value = found == attributes.values.end() ? cudaStreamAttrValue{} : found->second;
  });
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t destination, cudaStream_t source) {
  return on_device([&] {
    const StreamId to = stream_id(destination), from = stream_id(source);
    const std::lock_guard lock(attributes.mutex);
    const auto all = attributes.values;
    for (const auto &[key, value] : all)
      if (key.first == from)
        attributes.values[{to, key.second}] = value;
  });
}

cudaError_t cudaCtxResetPersistingL2Cache() {
  return on_device([] {});
}
