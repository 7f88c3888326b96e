// The functions of the module, each with its documentation in the file of its name.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice::python {

void BindSelect(nanobind::module_& module);
void BindSample(nanobind::module_& module);
void BindVerify(nanobind::module_& module);
void BindTopk(nanobind::module_& module);
void BindDenseHead(nanobind::module_& module);
void BindCertifiedHead(nanobind::module_& module);
void BindExplain(nanobind::module_& module);
void BindSampler(nanobind::module_& module);
void BindDeviceFields(nanobind::module_& module);
void BindCuda(nanobind::module_& module);
void BindCudaTopk(nanobind::module_& module);
void BindDeviceSampler(nanobind::module_& module);
void BindDeviceHead(nanobind::module_& module);
void BindText(nanobind::module_& module);
void BindEngine(nanobind::module_& module);
void BindGrammar(nanobind::module_& module);

}  // namespace sluice::python
