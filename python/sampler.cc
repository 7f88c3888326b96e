// sluice.Sampler: requests with their history, and the whole step from logits to tokens.
#include "python/sampler.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "python/execution.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/params.h"
#include "python/values/results.h"

namespace sluice::python {

PythonSampler::Options PythonSampler::OptionsFrom(nb::kwargs kwargs) {
  const Arguments arguments(Keywords{Keyword::vocab, Keyword::max_requests,
                                     Keyword::max_temperature, Keyword::backend, Keyword::threads},
                            kwargs);
  Options options;
  if (!arguments.Has(Keyword::vocab)) ThrowType("vocab", "None", "the number of tokens");
  options.vocab = GetNumber<int64_t>("vocab", arguments[Keyword::vocab]);
  if (const nb::handle most = arguments[Keyword::max_requests]; most.is_valid()) {
    options.max_requests = GetNumber<int32_t>("max_requests", most);
  }
  if (const nb::handle limit = arguments[Keyword::max_temperature]; limit.is_valid()) {
    options.limits.max_temperature = GetNumber<float>("max_temperature", limit);
  }
  options.backend = BackendFrom(arguments[Keyword::backend]);
  options.threads = nb::borrow(arguments[Keyword::threads]);
  options.parallel = ParallelFrom(options.threads);
  return options;
}

RequestHandle PythonSampler::Add(nb::handle params, nb::kwargs kwargs) {
  const Hold hold(*this);
  const Arguments arguments(kParamKeywords | Keywords{Keyword::prompt, Keyword::choice,
                                                      Keyword::max_new_tokens, Keyword::processors},
                            kwargs);
  Request request;
  if (!params.is_none()) {
    SamplingParams* given = nullptr;
    if (!nb::try_cast(params, given)) ThrowType("params", Describe(params), "SamplingParams");
    request.params = *given;
  }
  Assign(arguments, request.params);
  std::vector<int32_t> prompt;
  if (const nb::handle given = arguments[Keyword::prompt]; given.is_valid()) {
    prompt = GetInts("prompt", given);
    request.prompt = prompt;
  }
  if (const nb::handle choice = arguments[Keyword::choice]; choice.is_valid()) {
    request.choice = GetNumber<uint32_t>("choice", choice);
  }
  if (const nb::handle most = arguments[Keyword::max_new_tokens]; most.is_valid()) {
    request.max_new_tokens = GetNumber<int32_t>("max_new_tokens", most);
  }
  Running running;
  running.logprobs = request.params.logprobs;
  std::vector<LogitsProcessor> processors;
  if (const nb::handle given = arguments[Keyword::processors]; given.is_valid()) {
    running.processors = ProcessorsFrom(given);
    for (const auto& processor : running.processors) processors.push_back(processor->View());
    request.processors = processors;
  }
  const RequestHandle handle = sampler_.Add(request);
  running.generation = handle.generation;
  running_[handle.slot] = std::move(running);
  return handle;
}

void PythonSampler::Remove(RequestHandle handle) {
  const Hold hold(*this);
  sampler_.Remove(handle);
  running_.erase(handle.slot);
}

int PythonSampler::Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& [slot, running] : nb::inst_ptr<PythonSampler>(self)->running_) {
    for (const auto& processor : running.processors) Py_VISIT(processor->function());
  }
  return 0;
}

int PythonSampler::Clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  for (auto& [slot, running] : nb::inst_ptr<PythonSampler>(self)->running_) {
    for (const auto& processor : running.processors) processor->Forget();
  }
  return 0;
}

nb::object PythonSampler::Step(nb::handle logits_object, nb::handle requests, nb::kwargs kwargs) {
  const Hold hold(*this);
  const Arguments arguments(
      Keywords{Keyword::out, Keyword::masses, Keyword::kept, Keyword::adjusted}, kwargs);
  const MatrixArgument logits = GetMatrix("logits", logits_object);
  std::deque<StepArguments> steps;  // they stay in place: the requests show their memory
  std::vector<StepRequest> step_requests;
  int64_t width = 0;
  if (!PyList_Check(requests.ptr()) && !PyTuple_Check(requests.ptr())) {
    ThrowType("requests", Describe(requests), "a list of requests");
  }
  for (const nb::handle object : requests) {
    step_requests.push_back(steps.emplace_back(object).View());
    const std::optional<int32_t> most_likely = LogprobsOf(step_requests.back().request);
    if (!most_likely.has_value()) continue;
    width = std::max(width, 1 + (*most_likely < 0 ? options_.vocab : *most_likely));
  }

  const auto output = OutputFor<TokenResults>(arguments[Keyword::out], "TokenResults");
  TokenResults& tokens = *output.result;
  FitRows(tokens.rows, logits.view.rows);
  tokens.Begin(false, true);
  const size_t rows = tokens.rows.size();
  Fit("emitted", tokens.emitted, step_requests.size());
  Fit("masses", tokens.masses, arguments.Flag(Keyword::masses) ? rows : 0);
  tokens.top.Resize(rows, width);
  tokens.kept_words = arguments.Flag(Keyword::kept) ? (options_.vocab + 31) / 32 : 0;
  Fit("kept", tokens.kept, rows * static_cast<size_t>(tokens.kept_words));
  std::optional<MatrixArgument> adjusted;
  const bool has_trees =
      std::any_of(step_requests.begin(), step_requests.end(),
                  [](const StepRequest& request) { return !request.parents.empty(); });
  Fit("path", tokens.path, has_trees ? rows : 0);
  StepOutput step{tokens.rows, tokens.emitted, {}, tokens.kept, tokens.masses, {}, tokens.path};
  if (width > 0) step.logprobs = tokens.top.View();
  if (const nb::handle given = arguments[Keyword::adjusted]; given.is_valid()) {
    adjusted.emplace(GetMatrix("adjusted", given, Access::kWrite));
    step.adjusted = adjusted->MutableLogits();
  }
  {
    const nb::gil_scoped_release release;
    sampler_.Step({logits.Logits(), step_requests}, step);
  }
  return output.object;
}

std::optional<int32_t> PythonSampler::LogprobsOf(RequestHandle handle) const {
  const auto running = running_.find(handle.slot);
  if (running == running_.end() || running->second.generation != handle.generation) return {};
  return running->second.logprobs;
}

namespace {

constexpr const char* kInitSignature =
    "def __init__(self, *, vocab: int, max_requests: int = 256, max_temperature: float = 2.0, "
    "backend: str | None = None, threads: Threads | None = None) -> None";

constexpr const char* kSamplerDoc =
    R"(Requests with their history, and the whole step from logits to tokens.

Penalties, masks, bad words and the rest of SamplingParams act on each request's own history; a
request gets the same tokens alone, in any batch, in any order, with drafts or without. One call at
a time; ``threads`` share the rows of a step.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> request = sampler.add(top_k=4, repetition_penalty=1.1, seed=42, prompt=[2, 0])
    >>> logits = np.array([[1.5, 0.25, 3, 2.75, -1, 2.5]], np.float32)
    >>> tokens = sampler.step(logits, [request])
    >>> sampler.tokens(request).tolist() == [2, 0, *tokens.ids]
    True)";

constexpr const char* kAddDoc = R"(Adds a request and returns its handle.

``params`` and any of its fields as keywords on top; ``choice``: index among the completions of one
prompt; ``processors``: callables f(tokens, prompt_length, logits) that change the logits in place,
or LogitsProcessor. Throws ExhaustedError when all slots are taken.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> request = sampler.add(sluice.SamplingParams(seed=7), prompt=[1, 2], temperature=0)
    >>> sampler.seed(request)
    7)";

constexpr const char* kStepDoc =
    R"(Samples one row a request and appends the tokens to the histories.

``requests``: handles, or StepRequest with drafts, masks or a forced token; n drafts take n + 1
consecutive rows of the logits. ``masses=True`` and ``kept=True`` report the kept sets;
``adjusted``, float32 of the shape of the logits, receives the values after all adjustments. Lists
of log-probabilities are as wide as the requests' ``logprobs``.

    >>> sampler = sluice.Sampler(vocab=3)
    >>> a, b = sampler.add(temperature=0), sampler.add(temperature=0)
    >>> logits = np.array([[0, 9, 1], [9, 0, 0], [0, 0, 9]], np.float32)
    >>> tokens = sampler.step(logits, [sluice.StepRequest(a, drafts=[1]), b])
    >>> tokens.ids, tokens.emitted
    (array([1, 0, 2], dtype=int32), array([2, 1], dtype=int32)))";

constexpr const char* kStepFromHeadDoc =
    R"(Samples one token for each request from hidden states, by a CertifiedHead; the requests accept them.

Row i of ``hidden`` is that of ``requests[i]``, a handle of ``add``, each once a step. The ids and
statuses are those of ``dense_head`` and ``step``: penalties, bias, masks, bad words and min_tokens are
heeded, as is ``bitmask`` on top. Processors and log-probabilities need all logits: a request with
processors that would run, or with log-probabilities, is refused. ``with_cuts=True`` as for
``CertifiedHead.sample``. Backend and threads are the call's own.

    >>> head = sluice.CertifiedHead(np.eye(3, dtype=np.float32))
    >>> sampler = sluice.Sampler(vocab=3)
    >>> request = sampler.add(temperature=0, presence_penalty=2)
    >>> hidden = np.array([1, 4, 3], np.float32)
    >>> [sampler.step_from_head(head, hidden, [request]).ids.tolist() for _ in range(3)]
    [[1], [2], [1]])";

}  // namespace

void BindSampler(nb::module_& module) {
  BindRequests(module);
  const auto request = nb::arg("request");
  static PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(&PythonSampler::Traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(&PythonSampler::Clear)},
      {0, nullptr},
  };
  nb::class_<PythonSampler>(module, "Sampler", nb::type_slots(slots), kSamplerDoc)
      .def(
          "__init__",
          [](PythonSampler* self, nb::kwargs kwargs) { new (self) PythonSampler(kwargs); },
          nb::sig(kInitSignature))
      .def("add", &PythonSampler::Add, nb::arg("params").none() = nb::none(), nb::arg("kwargs"),
           nb::sig(AddSignature()), kAddDoc)
      .def("remove", &PythonSampler::Remove, request,
           R"(Ends a request; its handle names nothing from now on.

    >>> sampler = sluice.Sampler(vocab=6, max_requests=1)
    >>> sampler.remove(sampler.add())
    >>> sampler.free_slots
    1)")
      .def("step", &PythonSampler::Step, nb::arg("logits").none(), nb::arg("requests").none(),
           nb::arg("kwargs"),
           nb::sig("def step(self, logits: typing.Any, "
                   "requests: collections.abc.Sequence[RequestHandle | StepRequest], *, "
                   "out: TokenResults | None = None, masses: bool = False, kept: bool = False, "
                   "adjusted: typing.Any = None) -> TokenResults"),
           kStepDoc)
      .def("step_from_head", &PythonSampler::StepFromHead, nb::arg("head").none(),
           nb::arg("hidden").none(), nb::arg("requests").none(), nb::arg("kwargs"),
           nb::sig("def step_from_head(self, head: CertifiedHead, hidden: typing.Any, "
                   "requests: collections.abc.Sequence[RequestHandle], *, "
                   "bitmask: typing.Any = None, out: TokenResults | None = None, "
                   "with_cuts: bool = False, backend: str | None = None, "
                   "threads: Threads | None = None) -> TokenResults"),
           kStepFromHeadDoc)
      .def(
          "accept",
          [](PythonSampler& self, RequestHandle handle, nb::handle tokens) {
            const std::vector<int32_t> ids = GetInts("tokens", tokens);
            self.Call([&](Sampler& sampler) { sampler.Accept(handle, ids); });
          },
          request, nb::arg("tokens").none(),
          nb::sig(
              "def accept(self, request: RequestHandle, tokens: numpy.typing.ArrayLike) -> None"),
          R"(Appends tokens that came from elsewhere.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> request = sampler.add(prompt=[1])
    >>> sampler.accept(request, [2, 3])
    >>> sampler.tokens(request)
    array([1, 2, 3], dtype=int32))")
      .def(
          "rollback",
          [](PythonSampler& self, RequestHandle handle, nb::handle count) {
            const auto back = GetNumber<int64_t>("count", count);
            self.Call([&](Sampler& sampler) { sampler.Rollback(handle, back); });
          },
          request, nb::arg("count").none(),
          nb::sig("def rollback(self, request: RequestHandle, count: int) -> None"),
          R"(Takes back the last output tokens.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> request = sampler.add(prompt=[1])
    >>> sampler.accept(request, [2, 3])
    >>> sampler.rollback(request, 1)
    >>> sampler.tokens(request)
    array([1, 2], dtype=int32))")
      .def(
          "tokens",
          [](PythonSampler& self, RequestHandle handle) {
            return self.Call([&](Sampler& sampler) {
              const std::span<const int32_t> tokens = sampler.Tokens(handle);
              const auto copy = MakeNumpy<int32_t>({tokens.size()});
              std::copy(tokens.begin(), tokens.end(), copy.values.begin());
              return copy.object;
            });
          },
          request,
          nb::sig("def tokens(self, request: RequestHandle) -> numpy.typing.NDArray[numpy.int32]"),
          R"(Prompt and output, a copy.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> sampler.tokens(sampler.add(prompt=[1, 2]))
    array([1, 2], dtype=int32))")
      .def(
          "prompt_length",
          [](PythonSampler& self, RequestHandle handle) {
            return self.Call([&](Sampler& sampler) { return sampler.PromptLength(handle); });
          },
          request, R"(How many of the tokens are the prompt.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> sampler.prompt_length(sampler.add(prompt=[1, 2]))
    2)")
      .def(
          "seed",
          [](PythonSampler& self, RequestHandle handle) {
            return self.Call([&](Sampler& sampler) { return sampler.Seed(handle); });
          },
          request, R"(The seed in use: the given one, or the random one that was chosen.

    >>> sampler = sluice.Sampler(vocab=6)
    >>> sampler.seed(sampler.add(seed=42))
    42)")
      .def_prop_ro(
          "free_slots",
          [](PythonSampler& self) {
            return self.Call([](Sampler& sampler) { return sampler.FreeSlots(); });
          },
          "How many requests may still be added.")
      .def_prop_ro("vocab", &PythonSampler::vocab, "The number of tokens.");
}

}  // namespace sluice::python
