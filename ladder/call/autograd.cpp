// Calls of attention in C++, with its gradient as a function of torch's autograd. Where nothing has to be
// prepared, neither pass runs Python: each looks up its run, allocates its outputs and launches.
#include <ATen/record_function.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A stage's extension, see stages/include/ladder/binding.cpp, and torch's current stream of a GPU.
using Entry = int (*)(const void *values, int count, const uint64_t *addresses, void *stream);
using StreamOf = int32_t (*)(int32_t device, void **stream);

/// Calls a Python function, with the interpreter's lock. Raises what it raises.
py::object called(const py::object &function, const py::object &arguments) {
  PyObject *result = PyObject_CallObject(function.ptr(), arguments.ptr());
  if (result == nullptr) {
    python_error error;
    error.persist();
    throw error;
  }
  return py::reinterpret_steal<py::object>(result);
}

py::object wrapped(const Tensor &tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

py::tuple wrapped(const variable_list &tensors) {
  py::tuple result(tensors.size());
  for (size_t i = 0; i < tensors.size(); i++)
    result[i] = wrapped(tensors[i]);
  return result;
}

/// None becomes an undefined tensor.
Tensor unwrapped(PyObject *object) { return object == Py_None ? Tensor() : THPVariable_Unpack(object); }

/// Whether a kernel could not read its elements: torch's zero tensor has none, and others whose storage does.
bool lacks_memory(const Tensor &tensor) {
  return tensor.defined() && (!tensor.has_storage() || (!tensor.storage().data() && tensor.numel() > 0));
}

/// What a run needs besides its tensors: see ladder.call.runs.Run.
struct Run {
  std::string name;                         // for torch's profiler
  std::vector<std::vector<int64_t>> shapes; // of the outputs
  std::vector<at::TensorOptions> kinds;
  std::vector<size_t> copied;
  at::Device device;
  Entry entry; // null: `launch` is called with the tensors
  const void *values;
  int count;
  StreamOf stream_of;
  py::object launch, failed; // `failed` raises the error of a status
  py::object in_memory;      // returns the inputs, those of which are in memory that were not; or raises

  /// Launches on inputs, undefined ones where one is missing; returns the outputs.
  variable_list operator()(variable_list tensors) const {
    RECORD_FUNCTION(name, c10::ArrayRef<const c10::IValue>{});
    const at::AutoDispatchBelowADInplaceOrView below_autograd; // RECORD_FUNCTION may declare a guard
    variable_list outputs;
    for (size_t i = 0; i < shapes.size(); i++)
      outputs.push_back(at::empty(shapes[i], kinds[i]));
    if (std::any_of(tensors.begin(), tensors.end(), lacks_memory)) {
      const py::gil_scoped_acquire lock;
      const py::list found = called(in_memory, py::make_tuple(wrapped(tensors)));
      for (size_t i = 0; i < tensors.size(); i++)
        tensors[i] = unwrapped(found[i].ptr());
    }
    for (const size_t place : copied)
      tensors[place] = tensors[place].resolve_neg().contiguous();
    tensors.insert(tensors.end(), outputs.begin(), outputs.end());
    if (entry == nullptr) {
      const py::gil_scoped_acquire lock;
      called(launch, py::make_tuple(wrapped(tensors)));
      return outputs;
    }
    std::vector<uint64_t> addresses;
    for (const Tensor &tensor : tensors)
      addresses.push_back(tensor.defined() ? reinterpret_cast<uint64_t>(tensor.data_ptr()) : 0);
    const c10::OptionalDeviceGuard on_device(device);
    void *stream = nullptr;
    TORCH_CHECK(stream_of(device.index(), &stream) == 0, "torch has no current stream");
    if (const int status = entry(values, count, addresses.data(), stream); status != 0) {
      const py::gil_scoped_acquire lock;
      called(failed, py::make_tuple(status, addresses));
    }
    return outputs;
  }
};

/// The strides of tensors, which may differ between backward passes of one forward run, and whether memory
/// has their negatives.
std::vector<int64_t> strides_of(const variable_list &tensors) {
  std::vector<int64_t> strides;
  for (const Tensor &tensor : tensors) {
    strides.push_back(tensor.defined() ? tensor.dim() : -1);
    if (tensor.defined()) {
      strides.insert(strides.end(), tensor.strides().begin(), tensor.strides().end());
      strides.push_back(tensor.is_neg());
    }
  }
  return strides;
}

/// A forward run with the runs of its gradients.
struct Plan {
  std::shared_ptr<const Run> forward;
  py::object prepare;   // (*inputs) -> the run of the gradients
  py::object otherwise; // (d_o, d_lse, saved) -> the gradients by the operator, which refuses second ones
  std::mutex mutex{};
  std::list<std::pair<std::vector<int64_t>, std::shared_ptr<const Run>>> gradients{};

  std::shared_ptr<const Run> of_gradients(const variable_list &inputs) {
    auto strides = strides_of(inputs);
    {
      const std::lock_guard lock(mutex);
      for (const auto &[known, run] : gradients)
        if (known == strides)
          return run;
    }
    const py::gil_scoped_acquire locked;
    auto run = called(prepare, wrapped(inputs)).cast<std::shared_ptr<Run>>();
    const std::lock_guard lock(mutex);
    gradients.emplace_back(std::move(strides), run);
    return run;
  }
};

/// A plan as a tensor, whose memory it is. Graphs save it like other tensors, so it lives as long as one of
/// them.
Tensor tensor_of(Plan *plan) {
  const auto free = [](void *plan) {
    if (!Py_IsInitialized())
      return;
    const py::gil_scoped_acquire lock;
    delete static_cast<Plan *>(plan);
  };
  return at::from_blob(plan, {sizeof(Plan)}, free, at::kByte);
}

Plan &plan_of(const Tensor &tensor) { return *static_cast<Plan *>(tensor.data_ptr()); }

constexpr const char *kPlan = "plan";
constexpr size_t kInputs = 6, kSinks = 3; // q, k, v, sinks, cu_seqlens_q, cu_seqlens_k; then o and lse

struct Attention : torch::autograd::Function<Attention> {
  using Optional = std::optional<Tensor>;

  /// As a type of its own the plan is no variable for autograd.
  struct Planned {
    const Tensor &plan;
  };

  static variable_list forward(AutogradContext *ctx, Planned planned, const Tensor &q, const Tensor &k,
                               const Tensor &v, const Optional &sinks, const Optional &cu_q,
                               const Optional &cu_k) {
    const auto given = [](const Optional &tensor) { return tensor.value_or(Tensor()); };
    variable_list saved{q, k, v, given(sinks), given(cu_q), given(cu_k)};
    variable_list outputs = (*plan_of(planned.plan).forward)(saved);
    saved.insert(saved.end(), outputs.begin(), outputs.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data[kPlan] = planned.plan;
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext *ctx, variable_list d_outputs) {
    const Tensor planned = ctx->saved_data[kPlan].toTensor();
    Plan &plan = plan_of(planned);
    variable_list inputs = ctx->get_saved_variables(), gradients(1 + kInputs); // the plan has none
    if (!d_outputs[0].defined())
      d_outputs[0] = at::zeros_like(inputs[kInputs]);
    const bool is_batched = std::any_of(d_outputs.begin(), d_outputs.end(), [](const Tensor &gradient) {
      return gradient.defined() && !gradient.has_storage();
    });
    if (at::GradMode::is_enabled() || is_batched) { // create_graph=True, is_grads_batched=True
      const py::gil_scoped_acquire lock;
      const py::tuple found = called(
          plan.otherwise, py::make_tuple(wrapped(d_outputs[0]), wrapped(d_outputs[1]), wrapped(inputs)));
      for (size_t i = 0; i < found.size(); i++)
        gradients[1 + i] = unwrapped(found[i].ptr());
      return gradients;
    }
    const bool has_sinks = inputs[kSinks].defined();
    inputs.push_back(d_outputs[0]);
    inputs.push_back(d_outputs[1].defined() ? d_outputs[1].contiguous() : Tensor());
    if (!has_sinks)
      inputs.emplace_back(); // their gradient is then no output
    const auto run = plan.of_gradients(inputs);
    const variable_list found = (*run)(std::move(inputs));
    std::copy(found.begin(), found.end(), gradients.begin() + 1);
    return gradients;
  }
};

/// What a run depends on besides the choices of its call, as kind_of in kept.py has it. Empty if a tensor has
/// no strides.
using Kind = std::vector<int64_t>;

Kind kind_of(const variable_list &tensors) {
  Kind kind;
  kind.reserve(64);
  for (const Tensor &tensor : tensors) {
    if (!tensor.defined()) {
      kind.push_back(-1);
      continue;
    }
    if (tensor.layout() != at::kStrided || tensor.is_nested())
      return {};
    const at::Device device = tensor.device();
    kind.insert(kind.end(), {tensor.dim(), static_cast<int64_t>(tensor.scalar_type()),
                             static_cast<int64_t>(device.type()), device.index(), tensor.is_neg()});
    kind.insert(kind.end(), tensor.sizes().begin(), tensor.sizes().end());
    kind.insert(kind.end(), tensor.strides().begin(), tensor.strides().end());
  }
  return kind;
}

/// Equal values of equal types: 1 == True, but 1 is refused.
bool are_equal(PyObject *one, PyObject *other) {
  const Py_ssize_t size = PyTuple_GET_SIZE(one);
  if (size != PyTuple_GET_SIZE(other))
    return false;
  for (Py_ssize_t i = 0; i < size; i++) {
    PyObject *left = PyTuple_GET_ITEM(one, i), *right = PyTuple_GET_ITEM(other, i);
    if (left == right)
      continue;
    const int equal = Py_TYPE(left) == Py_TYPE(right) ? PyObject_RichCompareBool(left, right, Py_EQ) : 0;
    if (equal < 0)
      PyErr_Clear();
    if (equal != 1)
      return false;
  }
  return true;
}

/// Where rungs are looked for besides the usual folders.
std::string other_folders() {
  const char *folders = std::getenv("LADDER_STAGES");
  return folders == nullptr ? "" : folders;
}

/// The runs of calls that were seen before. All are called with the interpreter's lock.
class Calls {
public:
  explicit Calls(size_t most) : most_(most) {}

  /// (query, key, value, sinks, choices, differentiable) -> (o, lse), or None if no such call is known.
  py::object call(const py::args &given) const {
    const auto [tensors, choices, differentiable] = read(given);
    const Known *known = tensors.empty() ? nullptr : find(kind_of(tensors), choices, differentiable);
    if (known == nullptr)
      return py::none();
    const auto run = known->run; // a launch in Python may forget what is known
    const Tensor plan = known->plan, sinks = tensors[3].defined() ? tensors[3].contiguous() : Tensor();
    if (!differentiable)
      return wrapped((*run)({tensors[0], tensors[1], tensors[2], sinks, Tensor(), Tensor()}));
    const auto optional = sinks.defined() ? std::optional(sinks) : std::nullopt;
    return wrapped(Attention::apply(Attention::Planned{plan}, tensors[0], tensors[1], tensors[2], optional,
                                    std::nullopt, std::nullopt));
  }

  /// Keeps the run of such a call, and if it is differentiable its plan.
  void keep(const std::shared_ptr<Run> &run, const py::object &plan, const py::args &given) {
    auto [tensors, choices, differentiable] = read(given);
    Kind kind = tensors.empty() ? Kind{} : kind_of(tensors);
    if (kind.empty())
      return;
    if (known_.size() >= most_)
      known_.clear();
    const uint64_t hash = hash_of(kind);
    known_.emplace(
        hash, Known{std::move(kind), choices, differentiable, other_folders(), run, unwrapped(plan.ptr())});
  }

  void clear() { known_.clear(); }

private:
  struct Known {
    Kind kind;
    py::object choices;
    bool differentiable;
    std::string folders;
    std::shared_ptr<const Run> run;
    Tensor plan;
  };
  struct Given {
    variable_list tensors; ///< empty if one is no tensor
    py::object choices;
    bool differentiable;
  };

  static Given read(const py::args &given) {
    variable_list tensors;
    for (size_t i = 0; i < 4; i++) {
      PyObject *one = given[i].ptr();
      if (!THPVariable_Check(one) && !(i == 3 && one == Py_None))
        return {{}, py::none(), false};
      tensors.push_back(unwrapped(one));
    }
    return {std::move(tensors), given[4], given[5].ptr() == Py_True};
  }

  static uint64_t hash_of(const Kind &kind) {
    uint64_t hash = 0xcbf29ce484222325; // FNV-1a, by words
    for (const int64_t word : kind)
      hash = (hash ^ static_cast<uint64_t>(word)) * 0x100000001b3;
    return hash;
  }

  const Known *find(const Kind &kind, const py::object &choices, bool differentiable) const {
    if (kind.empty())
      return nullptr;
    const auto [begin, end] = known_.equal_range(hash_of(kind));
    for (auto known = begin; known != end; ++known) {
      const Known &one = known->second;
      if (one.kind == kind && one.differentiable == differentiable &&
          are_equal(one.choices.ptr(), choices.ptr()) && one.folders == other_folders())
        return &one;
    }
    return nullptr;
  }

  size_t most_;
  std::unordered_multimap<uint64_t, Known> known_;
};

/// apply(plan, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k) -> (o, lse)
PyObject *apply(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 1 + kInputs, "apply takes ", 1 + kInputs, " arguments");
  for (Py_ssize_t i = 0; i < count; i++)
    TORCH_CHECK((arguments[i] == Py_None && i > 3) || THPVariable_Check(arguments[i]), "argument ", i,
                " is no tensor");
  const auto tensor = [&](int i) -> const Tensor & { return THPVariable_Unpack(arguments[i]); };
  const auto optional = [&](int i) {
    return arguments[i] == Py_None ? std::nullopt : std::optional(tensor(i));
  };
  const variable_list outputs = Attention::apply(Attention::Planned{tensor(0)}, tensor(1), tensor(2),
                                                 tensor(3), optional(4), optional(5), optional(6));
  return wrapped(outputs).release().ptr();
  END_HANDLE_TH_ERRORS
}

/// The outputs are made like `examples`, in their shapes. `entry` is 0, or the addresses of a stage's entry,
/// of its values and of StreamOf, with the number of values.
std::shared_ptr<Run> make_run(const std::string &name, const std::vector<std::vector<int64_t>> &shapes,
                              const py::list &examples, const std::vector<size_t> &copied, intptr_t entry,
                              intptr_t values, int count, intptr_t stream_of, const py::object &launch,
                              const py::object &failed, const py::object &in_memory) {
  std::vector<at::TensorOptions> kinds;
  for (const py::handle example : examples)
    kinds.push_back(THPVariable_Unpack(example.ptr()).options());
  const at::Device device = kinds.at(0).device();
  return std::shared_ptr<Run>(new Run{name, shapes, kinds, copied, device, reinterpret_cast<Entry>(entry),
                                      reinterpret_cast<const void *>(values), count,
                                      reinterpret_cast<StreamOf>(stream_of), launch, failed, in_memory});
}

py::object make_plan(const std::shared_ptr<Run> &forward, const py::object &prepare,
                     const py::object &otherwise) {
  return wrapped(tensor_of(new Plan{forward, prepare, otherwise}));
}

PyMethodDef kMethods[] = {
    {"apply", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(apply)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

PYBIND11_MODULE(autograd, module) {
  py::class_<Run, std::shared_ptr<Run>>(module, "Run");
  py::class_<Calls>(module, "Calls")
      .def(py::init<size_t>())
      .def("call", &Calls::call)
      .def("keep", &Calls::keep)
      .def("clear", &Calls::clear);
  module.def("run", make_run);
  module.def("plan", make_plan);
  PyModule_AddFunctions(module.ptr(), kMethods);
}
