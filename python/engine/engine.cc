// sluice.EngineClient and what it gives: requests to engines, in this process or in others.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "python/engine/engine_client.h"
#include "python/engine/engine_facts.h"
#include "python/engine/engine_request.h"
#include "python/engine/output_grammar.h"
#include "python/errors.h"
#include "python/execution.h"
#include "python/text.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "support/check.h"

namespace sluice::python {
namespace {

// The outputs of one request, as an iterator. One that is given up aborts the request.
class OutputStream {
 public:
  OutputStream(nb::handle client, uint64_t id) : client_(nb::borrow(client)), id_(id) {}
  ~OutputStream() { Close(); }
  OutputStream(const OutputStream&) = delete;

  uint64_t id() const { return id_; }

  RequestOutput Next() {
    if (is_over_) throw nb::stop_iteration();
    std::optional<RequestOutput> output = client().Next(id_);
    is_over_ = !output.has_value() || output->end != GenerationEnd::kNone;
    if (!output.has_value()) throw nb::stop_iteration();
    return *std::move(output);
  }

  void Close() {
    if (!is_over_) client().Abandon(id_);
    is_over_ = true;
  }

 private:
  PythonEngineClient& client() const { return nb::cast<PythonEngineClient&>(client_); }

  nb::object client_;
  uint64_t id_;
  bool is_over_ = false;
};

// Makes the client of these parts, which may take long.
template <typename Make>
PythonEngineClient* NewClient(nb::handle kept, Make&& make) {
  EngineParts parts;
  {
    const nb::gil_scoped_release release;
    parts = make();
  }
  return new PythonEngineClient(std::move(parts), nb::borrow(kept));
}

// The path of a folder that exists: what is missing in it is found when the model is opened.
std::string ModelFolderFrom(nb::handle model_dir) {
  constexpr const char* kAllowed =
      "a folder with config.json, *.safetensors and tokenizer.json or tokenizer.model";
  if (!PyUnicode_Check(model_dir.ptr()) && !PyBytes_Check(model_dir.ptr()) &&
      !nb::hasattr(model_dir, "__fspath__")) {
    ThrowType("model_dir", Describe(model_dir), std::string("the path of ") + kAllowed);
  }
  std::string path = PathFrom(model_dir);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    ThrowValue("model_dir", ToText(std::string_view(path)), kAllowed);
  }
  return path;
}

PythonEngineClient* NewLocal(nb::handle model_dir, nb::handle max_requests, nb::handle cache_tokens,
                             nb::handle steps_in_flight, std::string_view head,
                             std::string_view stop_at, nb::handle max_temperature,
                             nb::handle backend, nb::handle threads,
                             std::string_view generation_config, nb::handle grammar_library) {
  LocalParts parts;
  parts.defaults = ParamDefaultsByName(generation_config);
  parts.directory = ModelFolderFrom(model_dir);
  parts.model.max_requests = GetNumber<int32_t>("max_requests", max_requests);
  parts.model.cache_tokens = GetNumber<int64_t>("cache_tokens", cache_tokens);
  parts.model.limits.max_temperature = GetNumber<float>("max_temperature", max_temperature);
  parts.model.backend = BackendFrom(backend);
  parts.model.parallel = ParallelFrom(threads);
  parts.head = HeadChoiceByName(head);
  parts.engine.steps_in_flight = GetNumber<int32_t>("steps_in_flight", steps_in_flight);
  parts.client.stop_at = StopAtByName(stop_at);
  parts.grammars = GrammarLibraryFrom(grammar_library);
  return NewClient(threads, [&] { return MakeLocalParts(parts); });
}

RemoteClientOptions RemoteOptions(std::string_view stop_at, nb::handle credits,
                                  nb::handle connect_timeout, nb::handle stall_timeout) {
  using std::chrono::milliseconds;
  RemoteClientOptions options;
  options.stop_at = StopAtByName(stop_at);
  options.credits = GetNumber<int32_t>("credits", credits);
  options.connect_timeout =
      std::chrono::ceil<milliseconds>(DurationFrom("connect_timeout", connect_timeout));
  options.stall_timeout =
      std::chrono::ceil<milliseconds>(DurationFrom("stall_timeout", stall_timeout));
  return options;
}

// An engine of vLLM does not report its model: that is said here, or read where the tokenizer
// is the model's folder.
void AddModel(nb::handle tokenizer, nb::handle end_tokens, nb::handle vocab,
              RemoteClientOptions& options) {
  if (const std::optional<ModelText> text = ModelTextFrom(tokenizer)) {
    options.end_tokens.assign(text->end_tokens().begin(), text->end_tokens().end());
    options.vocab = text->vocab();
  }
  if (!end_tokens.is_none()) options.end_tokens = GetInts("end_tokens", end_tokens);
  if (!vocab.is_none()) options.vocab = GetNumber<int64_t>("vocab", vocab);
}

PythonEngineClient* NewConnected(nb::handle endpoints, nb::handle tokenizer,
                                 std::string_view stop_at, nb::handle credits,
                                 nb::handle connect_timeout, nb::handle start_timeout,
                                 nb::handle stall_timeout, nb::handle end_tokens, nb::handle vocab,
                                 std::string_view generation_config) {
  RemoteClientOptions options = RemoteOptions(stop_at, credits, connect_timeout, stall_timeout);
  options.start_timeout =
      std::chrono::ceil<std::chrono::milliseconds>(DurationFrom("start_timeout", start_timeout));
  const std::vector<std::string> names = TextsFrom("endpoints", endpoints);
  if (std::ranges::any_of(names, IsVllmEndpoint)) {
    AddModel(tokenizer, end_tokens, vocab, options);
  }
  const SamplingParams defaults =
      StartingParamsFrom(tokenizer, ParamDefaultsByName(generation_config));
  Tokenizer made = TokenizerFrom(tokenizer);
  return NewClient(nb::none(),
                   [&] { return MakeConnectedParts(names, std::move(made), options, defaults); });
}

PythonEngineClient* NewSpawned(nb::handle command, nb::handle tokenizer, std::string_view stop_at,
                               nb::handle credits, nb::handle start_timeout,
                               nb::handle connect_timeout, nb::handle stall_timeout,
                               std::string_view generation_config) {
  const RemoteClientOptions options =
      RemoteOptions(stop_at, credits, connect_timeout, stall_timeout);
  const auto start =
      std::chrono::ceil<std::chrono::milliseconds>(DurationFrom("start_timeout", start_timeout));
  std::vector<std::string> words;
  if (PyList_Check(command.ptr()) || PyTuple_Check(command.ptr())) {
    words = TextsFrom("command", command);
    if (tokenizer.is_none()) {
      ThrowType("tokenizer", "None", "a Tokenizer or a path, with a command");
    }
  } else {
    words = {"sluice",  "engine",         "--quiet", "--listen", "tcp://127.0.0.1:*",
             "--model", PathFrom(command)};
  }
  const nb::handle source = tokenizer.is_none() ? command : tokenizer;
  const SamplingParams defaults =
      StartingParamsFrom(source, ParamDefaultsByName(generation_config));
  Tokenizer made = TokenizerFrom(source);
  return NewClient(nb::none(), [&] {
    return MakeSpawnedParts(words, start, std::move(made), options, defaults);
  });
}

constexpr const char* kDoc =
    R"(Requests to engines, and their text: an engine in this process, or engines in others.

``generate`` waits for whole texts, ``stream`` gives one as it comes; ``submit``, ``poll`` and ``abort`` are
for loops that do other things as well. A prompt is a str, or the ids of one; sampling parameters are
keywords, on top of the model's ``generation_config.json`` (``default_params``) or of a SamplingParams. The
same request gets the same text, bit for bit, whatever runs at the time and wherever the engine is.

One call at a time; a second one meanwhile, from another thread, is an Error. AsyncEngineClient is the
same for asyncio.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     client.generate("Once upon a time", max_tokens=5, temperature=0).text
    ' there was a man who')";

constexpr const char* kLocalDoc =
    R"(An engine in this process with the model of a folder, as Hugging Face stores it.

At most ``max_requests`` run at once, with room for ``cache_tokens`` together (0: a context's worth for
each, at most 1 GiB); what does not fit waits. Calls that wait compute: on the caller's thread, on
``threads``, and with ``steps_in_flight=1`` on one more, so that text is made while the model computes.
``head`` is ``"auto"``, ``"dense"``, ``"dither4"``, ``"strict"`` or ``"clusters"``: the head that computes logits,
equal ones.
``stop_at``: ``"engine"`` or ``"frontend"`` looks for stop strings; the text is the same.
``generation_config``: ``"auto"`` takes the model's file for ``default_params``, ``"vllm"`` SamplingParams().
``grammar_library``: the folder of xgrammar, for outputs with a grammar; None: of the variable
``SLUICE_GRAMMAR_LIBRARY``, or as it is installed. With it the engine has a few threads for grammars.

    >>> client = sluice.EngineClient.local("models/default", max_requests=8)
    >>> client.info["model"], client.info["max_requests"]
    ('default', 8)
    >>> client.close())";

constexpr const char* kConnectDoc =
    R"(Engines in other processes, at endpoints such as ``"tcp://127.0.0.1:5600"`` or ``"ipc:///run/engine"``.

Each request goes to the engine that has the fewest. ``tokenizer``, a Tokenizer, a file or the model's
folder, must be the engines'. An engine may send ``credits`` messages ahead. One that is not ready after
``connect_timeout`` seconds is an UnavailableError; one that has work and says nothing for
``stall_timeout`` seconds loses its requests.

At ``"vllm+tcp://ADDRESS:PORT"`` it waits for an engine of vLLM, for ``start_timeout`` seconds. Such a one
reports neither its ``end_tokens`` nor its ``vocab``, the number of its tokens: without these, the model's
folder has them where ``tokenizer`` is one; else nothing ends a text, and the tokenizer's number counts.

    >>> endpoint = "tcp://127.0.0.1:1"
    >>> sluice.EngineClient.connect(endpoint, "models/default", connect_timeout=0.1)
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    sluice.errors.UnavailableError: ...)";

constexpr const char* kSpawnDoc =
    R"(An engine in a process of its own, which ends with this client.

``command`` is the folder of a model, for the program ``sluice`` of the PATH, or a program with its
arguments that prints a line "listening on ENDPOINT". It is given ``start_timeout`` seconds for that.

    >>> sluice.EngineClient.spawn(["false"], "models/default")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    sluice.errors.UnavailableError: ...)";

constexpr const char* kSubmitDoc =
    R"(Begins a request and gives its id; ``poll`` has its outputs.

``stop``: strings that end the text, which are not in it unless ``include_stop``. ``ignore_eos``: the
model's end tokens do not end it. ``choice``: which of several texts of one prompt and seed. ``mode`` says
what outputs have: ``"delta"`` what is new, ``"cumulative"`` all so far, ``"final"`` everything, in one
output at the end. ``stream_interval``: an output for every so many tokens. ``prompt_logprobs=N``: the first
output says how likely each token of the prompt was, and which N were the most likely in its place; with
``max_tokens=0`` there is nothing else. ``json_schema`` (a dict, JSON or a model of pydantic),
``json_object=True``, ``regex``, ``grammar`` (GBNF or Lark) and ``choices`` say what the text has to match:
one of them, where ``info["has_grammars"]``. ``thinking_budget``: the model's reasoning ends after so many
tokens, with the marker of ``reasoning_format`` (``"deepseek"``, ``"mistral"`` or ``"seed"``), and stop strings
and a grammar count in the answer after it. Throws ExhaustedError when there is no room, and UnavailableError
when no engine is ready.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     id = client.submit("Once upon a", max_tokens=2, temperature=0, mode="final")
    ...     [output.text for output in client.poll()]
    [' time there'])";

constexpr const char* kPollDoc =
    R"(The outputs of submitted requests since the last poll, at most one of each.

Where there is none, waits for one: as long as it takes, or ``timeout`` seconds. Without a timeout an
empty list says that no request is left. Each request ends in exactly one output with ``finish``.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     client.poll()
    [])";

constexpr const char* kGenerateDoc =
    R"(The whole text of a prompt as an Output, or of a list of prompts as a list, in the same order.

Keywords as in ``submit``. Throws when a request is rejected or its engine is lost; the others are aborted
then, as they are by Ctrl-C.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     outputs = client.generate(["The king", "The queen"], max_tokens=2, temperature=0)
    >>> len(outputs), outputs[0].finish
    (2, 'length'))";

constexpr const char* kStreamDoc =
    R"(The outputs of a prompt as they come: an OutputStream. Keywords as in ``submit``.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     [output.text for output in client.stream("Once upon a", max_tokens=2, temperature=0)]
    [' time', ' there'])";

constexpr const char* kOutputStreamDoc =
    R"(The outputs of one request, from EngineClient.stream.

Closed or dropped before its end, it aborts the request. Outputs that come between two calls are joined
into one.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     for output in client.stream("Once upon a time", temperature=0):
    ...         break
    ...     client.engine_counters["running"], output.text
    (1, ' there'))";

}  // namespace

void BindEngine(nb::module_& module) {
  BindOutput(module);
  nb::class_<OutputStream>(module, "OutputStream", kOutputStreamDoc)
      .def_prop_ro("id", &OutputStream::id, "The request.")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> OutputStream"))
      .def("__next__", &OutputStream::Next)
      .def("close", &OutputStream::Close, R"(Aborts the request, unless it has ended.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     stream = client.stream("Once upon a time")
    ...     stream.close()
    ...     list(stream)
    [])");

  module.def("_are_prompts", &ArePrompts, nb::arg("prompt").none());
  const auto prompt = nb::arg("prompt").none();
  const auto params = nb::arg("params").none() = nb::none();
  const auto kwargs = nb::arg("kwargs");
  constexpr const char* kPrompt = "prompt: str | numpy.typing.ArrayLike";
  nb::class_<PythonEngineClient>(module, "EngineClient", kDoc)
      .def_static(
          "local", &NewLocal, nb::arg("model_dir"), nb::kw_only(), nb::arg("max_requests") = 64,
          nb::arg("cache_tokens") = 0, nb::arg("steps_in_flight") = 0, nb::arg("head") = "auto",
          nb::arg("stop_at") = "engine", nb::arg("max_temperature") = 2.0,
          nb::arg("backend") = nb::none(), nb::arg("threads") = nb::none(),
          nb::arg("generation_config") = "auto", nb::arg("grammar_library").none() = nb::none(),
          nb::rv_policy::take_ownership,
          nb::sig("def local(model_dir: str | bytes | os.PathLike, *, max_requests: int = 64, "
                  "cache_tokens: int = 0, steps_in_flight: int = 0, head: str = 'auto', "
                  "stop_at: str = 'engine', max_temperature: float = 2.0, "
                  "backend: str | None = None, threads: Threads | None = None, "
                  "generation_config: str = 'auto', "
                  "grammar_library: str | bytes | os.PathLike | None = None) -> EngineClient"),
          kLocalDoc)
      .def_static(
          "connect", &NewConnected, nb::arg("endpoints"), nb::arg("tokenizer"), nb::kw_only(),
          nb::arg("stop_at") = "engine", nb::arg("credits") = 64, nb::arg("connect_timeout") = 10.0,
          nb::arg("start_timeout") = 1200.0, nb::arg("stall_timeout") = 30.0,
          nb::arg("end_tokens") = nb::none(), nb::arg("vocab") = nb::none(),
          nb::arg("generation_config") = "auto", nb::rv_policy::take_ownership,
          nb::sig("def connect(endpoints: str | collections.abc.Sequence[str], "
                  "tokenizer: Tokenizer | str | bytes | os.PathLike, *, stop_at: str = 'engine', "
                  "credits: int = 64, connect_timeout: float = 10.0, "
                  "start_timeout: float = 1200.0, stall_timeout: float = 30.0, "
                  "end_tokens: collections.abc.Sequence[int] | None = None, "
                  "vocab: int | None = None, generation_config: str = 'auto') -> EngineClient"),
          kConnectDoc)
      .def_static(
          "spawn", &NewSpawned, nb::arg("command"), nb::arg("tokenizer").none() = nb::none(),
          nb::kw_only(), nb::arg("stop_at") = "engine", nb::arg("credits") = 64,
          nb::arg("start_timeout") = 120.0, nb::arg("connect_timeout") = 10.0,
          nb::arg("stall_timeout") = 30.0, nb::arg("generation_config") = "auto",
          nb::rv_policy::take_ownership,
          nb::sig("def spawn(command: str | os.PathLike | collections.abc.Sequence[str], "
                  "tokenizer: Tokenizer | str | bytes | os.PathLike | None = None, *, "
                  "stop_at: str = 'engine', credits: int = 64, start_timeout: float = 120.0, "
                  "connect_timeout: float = 10.0, stall_timeout: float = 30.0, "
                  "generation_config: str = 'auto') -> EngineClient"),
          kSpawnDoc)
      .def("submit", &PythonEngineClient::Submit, prompt, params, kwargs,
           nb::sig(EngineRequestSignature("submit", kPrompt, true, "int")), kSubmitDoc)
      .def("abort", &PythonEngineClient::Abort, nb::arg("id"),
           R"(Ends a request; a poll has its last output. One that has ended is ignored.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     client.abort(client.submit("Once upon a time"))
    ...     [output.finish for output in client.poll()]
    ['cancelled'])")
      .def("poll", &PythonEngineClient::Poll, nb::arg("timeout").none() = nb::none(),
           nb::sig("def poll(self, timeout: float | None = None) -> list[Output]"), kPollDoc)
      .def("generate", &PythonEngineClient::Generate, prompt, params, kwargs,
           nb::sig(EngineRequestSignature(
               "generate", "prompt: str | numpy.typing.ArrayLike | collections.abc.Sequence", false,
               "Output | list[Output]")),
           kGenerateDoc)
      .def(
          "stream",
          [](nb::handle self, nb::handle text, nb::handle given, nb::kwargs more) {
            auto& client = nb::cast<PythonEngineClient&>(self);
            return new OutputStream(self, client.SubmitOwned(text, given, more));
          },
          prompt, params, kwargs, nb::rv_policy::take_ownership,
          nb::sig(EngineRequestSignature("stream", kPrompt, true, "OutputStream")), kStreamDoc)
      .def("close", &PythonEngineClient::Close,
           R"(Ends the engine, or leaves it; requests that live end without an output.

    >>> client = sluice.EngineClient.local("models/default")
    >>> client.close()
    >>> client.poll()
    Traceback (most recent call last):
    ...
    sluice.errors.Error: client = closed is not allowed: one that is open)")
      .def(
          "fileno",
          [](PythonEngineClient& self) {
            const int fd = self.Call([](EngineParts& parts) { return parts.client->event_fd(); });
            if (fd < 0) {
              throw Error(ErrorCode::kUnavailable, "fileno", "-1",
                          "an engine in another process; this one computes in poll");
            }
            return fd;
          },
          R"(For event loops: readable when poll has something to do, signalled once. Poll until it is empty.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     client.fileno()
    Traceback (most recent call last):
    ...
    sluice.errors.UnavailableError: fileno = -1 is not allowed: an engine in another process; this one computes in poll)")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> EngineClient"))
      .def(
          "__exit__", [](PythonEngineClient& self, nb::args) { self.Close(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def_prop_ro(
          "info",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) { return InfoOf(parts.client->info()); });
          },
          nb::sig("def info(self) -> dict[str, typing.Any]"),
          "The model and the limits of the (first) engine.")
      .def_prop_ro(
          "tokenizer",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) { return parts.client->tokenizer(); });
          },
          "What makes ids of prompts and text of ids.")
      .def_prop_ro(
          "default_params",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) { return parts.defaults; });
          },
          "Where the parameters of a request start: a copy of those of the model.")
      .def_prop_ro(
          "health",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) { return Name(parts.client->health()); });
          },
          nb::sig("def health(self) -> str"),
          "``\"connecting\"``, ``\"ready\"``, ``\"stalled\"`` or ``\"dead\"``.")
      .def_prop_ro(
          "live_requests",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) { return parts.client->live_requests(); });
          },
          "How many requests have not ended.")
      .def_prop_ro(
          "counters",
          [](PythonEngineClient& self) {
            return self.Call(
                [](EngineParts& parts) { return CountersOf(parts.client->counters()); });
          },
          nb::sig("def counters(self) -> dict[str, int]"),
          "What this client has sent and had, and what it dropped.")
      .def_prop_ro(
          "engine_counters",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) -> nb::object {
              if (parts.engine == nullptr) return nb::none();
              return CountersOf(parts.engine->counters());
            });
          },
          nb::sig("def engine_counters(self) -> dict[str, int] | None"),
          "Of an engine in this process, else None.")
      .def_prop_ro(
          "pid",
          [](PythonEngineClient& self) {
            return self.Call([](EngineParts& parts) -> nb::object {
              if (parts.process == nullptr) return nb::none();
              return nb::cast(parts.process->pid());
            });
          },
          nb::sig("def pid(self) -> int | None"), "The process that spawn began, else None.");
}

}  // namespace sluice::python
