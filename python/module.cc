// The extension module sluice._sluice. sluice/__init__.py names what of it is public.
#include <nanobind/nanobind.h>

#include "python/errors.h"
#include "python/execution.h"
#include "python/research/cluster_head.h"
#include "python/values/calls.h"
#include "python/values/keywords.h"
#include "python/values/params.h"
#include "python/values/results.h"

NB_MODULE(_sluice, module) {
  using namespace sluice::python;  // NOLINT(google-build-using-namespace)
  // They speak of objects that other modules keep until the interpreter has ended.
  nb::set_leak_warnings(false);
  InternKeywords();
  RegisterErrors();
  BindResults(module);  // types first: signatures of the calls name them
  BindParams(module);
  BindExecution(module);
  BindSelect(module);
  BindSample(module);
  BindVerify(module);
  BindTopk(module);
  BindDenseHead(module);
  BindCertifiedHead(module);
  BindClusterHead(module);
  BindSampler(module);
  BindExplain(module);
  BindDeviceFields(module);
  BindCuda(module);
  BindCudaTopk(module);
  BindDeviceSampler(module);
  BindDeviceHead(module);
#ifdef SLUICE_HAS_TEXT
  BindText(module);
#endif
#ifdef SLUICE_HAS_LINK
  BindEngine(module);
  BindGrammar(module);
#endif
}
