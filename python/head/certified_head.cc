// CertifiedHead: hidden states to tokens from planes of the head, the dense head's bit for bit.
#include "python/head/certified_head.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <string>

#include "python/errors.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "python/values/signature.h"

namespace sluice::python {
namespace {

// A callable for the number of finished rows: one call at a time, of more rows each, by any
// thread. After an exception there is no other call; it is thrown when the threads are through.
class Progress {
 public:
  explicit Progress(nb::handle function) : function_(function) {
    if (!function.is_none() && !PyCallable_Check(function.ptr())) {
      ThrowType("progress", Describe(function), "a callable");
    }
  }

  static void Report(void* self, int64_t rows, int64_t vocab) {
    const nb::gil_scoped_acquire acquire;
    static_cast<Progress*>(self)->Call(rows, vocab);
  }
  void Rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  // A call may let other threads run: their numbers are reported after it.
  void Call(int64_t rows, int64_t vocab) {
    done_ = std::max(done_, rows);
    if (is_calling_) return;
    is_calling_ = true;
    try {
      while (error_ == nullptr && reported_ < done_) {
        reported_ = done_;
        function_(reported_, vocab);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    is_calling_ = false;
  }

  nb::handle function_;
  // Under the GIL:
  bool is_calling_ = false;
  int64_t done_ = 0;
  int64_t reported_ = 0;
  std::exception_ptr error_;
};

}  // namespace

PythonCertifiedHead::PythonCertifiedHead(nb::handle weight, nb::handle bias,
                                         std::optional<std::string_view> kind, nb::handle seed,
                                         nb::handle planes, bool check, nb::handle threads,
                                         nb::handle progress)
    : weight_(GetMatrix("weight", weight)) {
  weight_.array.CheckDims("weight", 2, 2);
  DenseHead dense{weight_.view, {}};
  if (!bias.is_none()) {
    bias_.emplace(GetElements<const float>("bias", bias, Access::kRead, {weight_.view.rows}));
    dense.bias = bias_->values;
  }
  HeadPlaneOptions options;
  if (kind.has_value()) options.kind = CertificateKindByName(*kind);
  if (!seed.is_none()) options.seed = GetNumber<uint64_t>("seed", seed);
  const bool is_built = planes.is_none();
  if (!is_built && options.seed.has_value()) {
    ThrowValue("seed", std::to_string(*options.seed), "None with planes, which have their dither");
  }
  const std::string path = is_built ? std::string() : PathFrom(planes);
  const ParallelFor parallel = ParallelFrom(threads.is_none() ? nb::handle() : threads);
  Progress reported(progress);
  if (!progress.is_none()) {
    options.progress = Progress::Report;
    options.progress_context = &reported;
  }
  const nb::gil_scoped_release release;
  head_.emplace(dense, is_built ? HeadPlanes::Build(weight_.view, options, parallel)
                                : HeadPlanes::Load(path, weight_.view, {check, check}, parallel));
  if (kind.has_value() && head_->planes().kind() != options.kind) {
    ThrowValue("kind", '"' + std::string(*kind) + '"',
               "None or " + std::string(Name(head_->planes().kind())) + ", the kind of planes");
  }
  reported.Rethrow();
}

nb::object PythonCertifiedHead::TopK(nb::handle hidden_object, nb::handle k_object,
                                     nb::kwargs kwargs) {
  const Arguments arguments(
      Keywords{Keyword::bitmask, Keyword::out, Keyword::backend, Keyword::threads}, kwargs);
  const MatrixArgument hidden = GetMatrix("hidden", hidden_object);
  const auto k =
      GetNumber<int32_t>("k", k_object, {1, static_cast<uint64_t>(head_->head().weight.rows)});
  const Bitmask bitmask = BitmaskFrom(arguments, hidden);
  Execution execution;
  execution.backend = BackendFrom(arguments[Keyword::backend]);
  execution.parallel = ParallelFrom(arguments[Keyword::threads]);
  const auto output = OutputFor<TopkResults>(arguments[Keyword::out], "TopkResults");
  TopkResults& top = *output.result;
  const size_t size = static_cast<size_t>(hidden.view.rows) * static_cast<size_t>(k);
  FitRows(top.statuses, hidden.view.rows);
  Fit("indices", top.indices, size);
  Fit("values", top.values, size);
  top.k = k;
  top.is_row = hidden.is_row;
  execution.workspace = Workspace(head_->TopKWorkspaceBytes(hidden.view.rows, execution));
  CertifiedStats stats;
  {
    const nb::gil_scoped_release release;
    stats = head_->TopK({hidden.view, bitmask.words()}, {k, top.indices, top.values, top.statuses},
                        {}, execution);
  }
  Count(stats);
  return output.object;
}

nb::object PythonCertifiedHead::Sample(nb::handle hidden_object, nb::handle params_object,
                                       nb::kwargs kwargs) {
  const Arguments arguments(
      kRowKeywords | Keywords{Keyword::bitmask, Keyword::out, Keyword::with_cuts}, kwargs);
  const MatrixArgument hidden = GetMatrix("hidden", hidden_object);
  RowParams params(params_object, arguments, hidden.view.rows);
  if (params.logprobs().has_value()) {
    ThrowValue("logprobs", std::to_string(*params.logprobs()),
               "None: they are measured on all logits, which dense_head has");
  }
  const Bitmask bitmask = BitmaskFrom(arguments, hidden);
  Execution execution = ExecutionFrom(arguments);
  const auto output = OutputFor<TokenResults>(arguments[Keyword::out], "TokenResults");
  TokenResults& tokens = *output.result;
  FitRows(tokens.rows, hidden.view.rows);
  std::vector<TokenResult> rows(tokens.rows.size());  // a call that is refused changes nothing
  const bool with_cuts = arguments.Flag(Keyword::with_cuts);
  const std::vector<uint64_t> seeds = params.ChooseSeeds();
  execution.workspace =
      Workspace(SampleFromHeadWorkspaceBytes(*head_, hidden.view.rows, execution));
  CertifiedStats stats;
  {
    const nb::gil_scoped_release release;
    const CertifiedInput input{hidden.view, bitmask.words()};
    stats = with_cuts ? SampleFromHead(*head_, input, params.select(), params.keys(),
                                       params.limits(), params.draw_method(), rows, {}, execution)
                      : IdsInto(rows, [&](auto ids, auto statuses) {
                          return SampleIdsFromHead(*head_, input, params.select(), params.keys(),
                                                   params.limits(), params.draw_method(), ids,
                                                   statuses, {}, execution);
                        });
  }
  tokens.Begin(hidden.is_row, with_cuts);
  Fit("seeds", tokens.seeds, seeds.size());
  std::copy(seeds.begin(), seeds.end(), tokens.seeds.begin());
  std::copy(rows.begin(), rows.end(), tokens.rows.begin());
  Count(stats);
  return output.object;
}

nb::dict PythonCertifiedHead::Stats() const {
  nb::dict stats;
  stats["rows"] = total_.rows;
  stats["dense_rows"] = total_.dense_rows;
  stats["survivors"] = total_.survivors;
  stats["bytes_read"] = total_.bytes_read;
  stats["dense_bytes"] = total_.dense_bytes;
  stats["least_margin"] = total_.least_margin;
  return stats;
}

PythonCertifiedHead::Bitmask PythonCertifiedHead::BitmaskFrom(const Arguments& arguments,
                                                              const MatrixArgument& hidden) const {
  Bitmask bitmask;
  if (const nb::handle given = arguments[Keyword::bitmask]; given.is_valid()) {
    const int64_t words = (head_->head().weight.rows + 31) / 32;
    bitmask.elements.emplace(
        hidden.is_row ? GetElements<const int32_t>("bitmask", given, Access::kRead, {words})
                      : GetElements<const int32_t>("bitmask", given, Access::kRead,
                                                   {hidden.view.rows, words}));
  }
  return bitmask;
}

void PythonCertifiedHead::Count(const CertifiedStats& stats) {
  total_.rows += stats.rows;
  total_.dense_rows += stats.dense_rows;
  total_.survivors += stats.survivors;
  total_.bytes_read += stats.bytes_read;
  total_.dense_bytes += stats.dense_bytes;
  total_.least_margin = std::min(total_.least_margin, stats.least_margin);
}

namespace {

constexpr const char* kClassDoc =
    R"(A vocabulary projection that reads a quarter of the weights and returns the dense head's tokens.

Planes of four bits an element are built from ``weight`` ([vocab, dim]), or mapped from the file
``planes`` that ``save`` wrote; ``check=False`` leaves out the comparison with its hashes. ``kind``:
"dither4", which is what None builds, or "strict", with bounds that cannot fail; with ``planes`` None
or the file's. ``seed``: of the dither to build; keep it private. ``progress``: called now and then
while planes are built, with the rows that are done and all rows, by any thread, one at a time.
docs/certified-head-proof.md has the proofs. The arrays are kept, not copied, and must not change.

    >>> weight = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> head = sluice.CertifiedHead(weight)
    >>> head.topk(np.array([2, 3], np.float32), k=2).indices
    array([2, 1], dtype=int32))";

constexpr const char* kTopKDoc =
    R"(The k largest logits of each hidden state, [rows, dim] or [dim], and their tokens, in order.

The bits are those of ``dense_head``. ``bitmask``: int32, ceil(vocab / 32) words a row, the tokens
that are allowed.

    >>> head = sluice.CertifiedHead(np.eye(3, dtype=np.float32))
    >>> head.topk(np.array([[1, 3, 2]], np.float32), 2).values
    array([[3., 2.]], dtype=float32))";

constexpr const char* kHeadSampleDoc =
    R"(Samples one token a hidden state: the ids and statuses of ``dense_head`` and ``sample``.

``with_cuts=True`` adds the Cuts. Those of top-p without top-k take far more than the token does.

    >>> head = sluice.CertifiedHead(np.eye(3, dtype=np.float32))
    >>> head.sample(np.array([1, 9, 2], np.float32), temperature=0.5, seed=7).ids
    1)";

constexpr const char* kStatsDoc =
    R"(What all calls took: rows, those that needed the dense head, rows of the head that were computed,
bytes read, bytes that the dense head would have read, and the least margin of a certificate.

    >>> head = sluice.CertifiedHead(np.eye(3, dtype=np.float32))
    >>> head.stats["rows"]
    0)";

constexpr const char* kSaveDoc = R"(Writes the planes into a file, without the weights.

A "dither4" file holds the dither, so it is as private as the seed: planes to publish should be
"strict", or built where they are used.

    >>> head = sluice.CertifiedHead(np.eye(3, dtype=np.float32))
    >>> head.save("/nowhere/planes")
    Traceback (most recent call last):
    sluice.errors.Error: path = "/nowhere/planes" (No such file or directory) is not allowed: a file that can be written)";

}  // namespace

const CertifiedHead& CertifiedHeadOf(nb::handle head) {
  return nb::cast<const PythonCertifiedHead&>(head).head();
}

void BindCertifiedHead(nb::module_& module) {
  nb::class_<PythonCertifiedHead>(module, "CertifiedHead", kClassDoc)
      .def(nb::init<nb::handle, nb::handle, std::optional<std::string_view>, nb::handle, nb::handle,
                    bool, nb::handle, nb::handle>(),
           nb::arg("weight").none(), nb::arg("bias").none() = nb::none(), nb::kw_only(),
           nb::arg("kind").none() = nb::none(), nb::arg("seed").none() = nb::none(),
           nb::arg("planes").none() = nb::none(), nb::arg("check") = true,
           nb::arg("threads").none() = nb::none(), nb::arg("progress").none() = nb::none(),
           nb::sig("def __init__(self, weight: typing.Any, bias: typing.Any = None, *, "
                   "kind: str | None = None, seed: int | None = None, "
                   "planes: typing.Any = None, check: bool = True, "
                   "threads: Threads | None = None, "
                   "progress: collections.abc.Callable[[int, int], object] | None = None) "
                   "-> None"))
      .def("topk", &PythonCertifiedHead::TopK, nb::arg("hidden").none(), nb::arg("k").none(),
           nb::arg("kwargs"),
           nb::sig("def topk(self, hidden: typing.Any, k: int, *, bitmask: typing.Any = None, "
                   "out: TopkResults | None = None, backend: str | None = None, "
                   "threads: Threads | None = None) -> TopkResults"),
           kTopKDoc)
      .def("sample", &PythonCertifiedHead::Sample, nb::arg("hidden").none(),
           nb::arg("params").none() = nb::none(), nb::arg("kwargs"),
           nb::sig(RowSignature("sample", "self, hidden: typing.Any",
                                "bitmask: typing.Any = None, out: TokenResults | None = None, "
                                "with_cuts: bool = False, draw_method: str | None = None",
                                "TokenResults")),
           kHeadSampleDoc)
      .def(
          "save",
          [](const PythonCertifiedHead& self, nb::handle path) {
            const std::string file = PathFrom(path);
            const nb::gil_scoped_release release;
            self.planes().Save(file);
          },
          nb::arg("path"), nb::sig("def save(self, path: typing.Any) -> None"), kSaveDoc)
      .def_prop_ro("stats", &PythonCertifiedHead::Stats,
                   nb::sig("def stats(self) -> dict[str, int | float]"), kStatsDoc)
      .def_prop_ro(
          "kind", [](const PythonCertifiedHead& self) { return Name(self.planes().kind()); },
          "\"dither4\" or \"strict\".")
      .def_prop_ro(
          "nbytes", [](const PythonCertifiedHead& self) { return self.planes().bytes(); },
          "Bytes of the planes, in memory and as a file.");
}

}  // namespace sluice::python
