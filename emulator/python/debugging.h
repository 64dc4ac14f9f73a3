// The class Stepper of the Python module.
#pragma once

#include <pybind11/pybind11.h>

namespace ladder::python {

void bind_stepper(pybind11::module_ &m);

} // namespace ladder::python
