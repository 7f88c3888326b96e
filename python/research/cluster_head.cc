// sluice.research.ClusterHead: questions to the rows of an output matrix in clusters.
#include "python/research/cluster_head.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "python/errors.h"
#include "python/execution.h"
#include "python/values/arrays.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "sluice/research/clusters.hpp"

namespace sluice::python {
namespace {

namespace nb = nanobind;
using research::ClusterCertificate;

class PythonClusterHead {
 public:
  PythonClusterHead(nb::handle weight, nb::handle bias, std::string_view metric,
                    nb::handle clusters, nb::handle rounds, nb::handle seed, nb::handle fine_tokens,
                    nb::handle fine_clusters, nb::handle file, nb::handle threads)
      : weight_(GetMatrix("weight", weight)) {
    weight_.array.CheckDims("weight", 2, 2);
    DenseHead dense{weight_.view, {}};
    if (!bias.is_none()) {
      bias_.emplace(GetElements<const float>("bias", bias, Access::kRead, {weight_.view.rows}));
      dense.bias = bias_->values;
    }
    research::ClusterOptions options;
    options.metric = research::ClusterMetricByName(metric);
    options.clusters = GetNumber<int64_t>("clusters", clusters);
    options.rounds = GetNumber<int32_t>("rounds", rounds);
    options.seed = GetNumber<uint64_t>("seed", seed);
    std::optional<Elements<const int32_t>> fine;
    if (!fine_tokens.is_none()) {
      fine.emplace(GetElements<const int32_t>("fine_tokens", fine_tokens, Access::kRead, {-1}));
      options.fine_tokens = fine->values;
      options.fine_clusters = GetNumber<int64_t>("fine_clusters", fine_clusters);
    }
    const std::string path = file.is_none() ? std::string() : PathFrom(file);
    const ParallelFor parallel = ParallelFrom(threads);
    const nb::gil_scoped_release release;
    clusters_.emplace(path.empty() ? research::HeadClusters::Build(dense, options, parallel)
                                   : research::HeadClusters::Load(path, dense, parallel));
    search_.emplace(dense, *clusters_);
  }

  nb::dict TopK(nb::handle hidden, nb::handle k) {
    return Search(hidden, {.k = GetNumber<int32_t>("k", k)});
  }
  nb::dict Softmax(nb::handle hidden, nb::handle epsilon, nb::handle temperature) {
    return Search(hidden, {.certificate = ClusterCertificate::kSoftmax,
                           .epsilon = GetReal("epsilon", epsilon),
                           .temperature = GetReal("temperature", temperature)});
  }
  nb::dict TopP(nb::handle hidden, nb::handle p, nb::handle temperature) {
    return Search(hidden, {.certificate = ClusterCertificate::kTopP,
                           .p = GetReal("p", p),
                           .temperature = GetReal("temperature", temperature)});
  }

  nb::object Bounds(nb::handle hidden_object) const {
    const MatrixArgument hidden = GetMatrix("hidden", hidden_object);
    const auto bounds = MakeNumpy<double>({static_cast<size_t>(clusters_->clusters())});
    const nb::gil_scoped_release release;
    search_->Bounds(hidden.view, bounds.values);
    return bounds.object;
  }

  void Save(nb::handle path) const {
    const std::string file = PathFrom(path);
    const nb::gil_scoped_release release;
    clusters_->Save(file);
  }

  const research::HeadClusters& clusters() const { return *clusters_; }

 private:
  nb::dict Search(nb::handle hidden_object, const research::ClusterQuestion& question) {
    const MatrixArgument hidden = GetMatrix("hidden", hidden_object);
    research::ClusterAnswer answer;
    {
      const nb::gil_scoped_release release;
      const std::lock_guard lock(searching_);  // threads of Python; the search keeps its memory
      answer = search_->Search(hidden.view, question);
    }
    const auto ids = MakeNumpy<int32_t>({answer.ids.size()});
    const auto logits = MakeNumpy<float>({answer.logits.size()});
    std::ranges::copy(answer.ids, ids.values.begin());
    std::ranges::copy(answer.logits, logits.values.begin());
    nb::dict said;
    said["ids"] = ids.object;
    said["logits"] = logits.object;
    said["path"] = Name(answer.path);
    said["reason"] = Name(answer.reason);
    said["clusters_opened"] = answer.clusters_opened;
    said["rows_opened"] = answer.rows_opened;
    if (question.certificate == ClusterCertificate::kSoftmax) said["epsilon"] = answer.epsilon;
    return said;
  }

  MatrixArgument weight_;
  std::optional<Elements<const float>> bias_;
  std::optional<research::HeadClusters> clusters_;
  std::optional<research::ClusterSearch> search_;
  std::mutex searching_;
};

constexpr const char* kClusterHeadDoc =
    R"(The rows of an output matrix in clusters, which are read only where they can matter.

``weight`` ([vocab, dim]) is divided by k-means into ``clusters``, bounded by balls ("euclidean") or
cones ("spherical"); ``fine_tokens``, int32, get ``fine_clusters`` of their own. ``file``: read what
``save`` wrote for the same weights instead. The arrays are kept, not copied, and must not change.
Searches of several threads go one after the other. docs/research/csv-decode.md says what it gains.

    >>> head = sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3)
    >>> head.topk(np.array([1, 3, 2], np.float32), k=2)["ids"]
    array([1, 2], dtype=int32))";

constexpr const char* kClusterTopKDoc =
    R"(The first k tokens of a hidden state ([dim]) with their logits, those of ``dense_head``.

``path`` of the result is "budget", "expanded" or "dense": how far the search had to go. A hidden
state that is not finite has no ids, and the reason "hidden".

    >>> head = sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3)
    >>> head.topk(np.array([1, 3, 2], np.float32), 1)["logits"]
    array([3.], dtype=float32))";

constexpr const char* kClusterSoftmaxDoc =
    R"(Tokens with a softmax within ``epsilon`` of that of all tokens, in total variation.

``epsilon`` of the result is the variation at most.

    >>> head = sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3)
    >>> head.softmax(np.array([1, 30, 2], np.float32), 0.05)["epsilon"] <= 0.05
    True)";

constexpr const char* kClusterTopPDoc =
    R"(The tokens that top-p keeps, in their order.

    >>> head = sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3)
    >>> head.topp(np.array([1, 30, 2], np.float32), 0.9)["ids"]
    array([1], dtype=int32))";

constexpr const char* kClusterBoundsDoc =
    R"(The upper bound of the logits of each cluster for a hidden state ([dim]).

    >>> head = sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3)
    >>> head.bounds(np.array([1, 3, 2], np.float32)).max() >= 3
    True)";

constexpr const char* kClusterSaveDoc = R"(Writes the clusters into a file, without the weights.

    >>> head = sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3)
    >>> head.save("/nowhere/clusters")
    Traceback (most recent call last):
    sluice.errors.Error: path = "/nowhere/clusters" (No such file or directory) is not allowed: a file that can be written)";

}  // namespace

void BindClusterHead(nb::module_& module) {
  nb::class_<PythonClusterHead>(module, "ClusterHead", kClusterHeadDoc)
      .def(nb::init<nb::handle, nb::handle, std::string_view, nb::handle, nb::handle, nb::handle,
                    nb::handle, nb::handle, nb::handle, nb::handle>(),
           nb::arg("weight").none(), nb::arg("bias").none() = nb::none(), nb::kw_only(),
           nb::arg("metric") = "euclidean", nb::arg("clusters") = 2000, nb::arg("rounds") = 10,
           nb::arg("seed") = 1, nb::arg("fine_tokens").none() = nb::none(),
           nb::arg("fine_clusters") = 1, nb::arg("file").none() = nb::none(),
           nb::arg("threads").none() = nb::none(),
           nb::sig("def __init__(self, weight: typing.Any, bias: typing.Any = None, *, "
                   "metric: str = \"euclidean\", clusters: int = 2000, rounds: int = 10, "
                   "seed: int = 1, fine_tokens: typing.Any = None, fine_clusters: int = 1, "
                   "file: typing.Any = None, threads: Threads | None = None) -> None"))
      .def("topk", &PythonClusterHead::TopK, nb::arg("hidden").none(), nb::arg("k").none(),
           nb::sig("def topk(self, hidden: typing.Any, k: int) -> dict[str, typing.Any]"),
           kClusterTopKDoc)
      .def("softmax", &PythonClusterHead::Softmax, nb::arg("hidden").none(),
           nb::arg("epsilon").none() = 0.05, nb::arg("temperature").none() = 1.0,
           nb::sig("def softmax(self, hidden: typing.Any, epsilon: float = 0.05, "
                   "temperature: float = 1.0) -> dict[str, typing.Any]"),
           kClusterSoftmaxDoc)
      .def("topp", &PythonClusterHead::TopP, nb::arg("hidden").none(), nb::arg("p").none() = 0.9,
           nb::arg("temperature").none() = 1.0,
           nb::sig("def topp(self, hidden: typing.Any, p: float = 0.9, "
                   "temperature: float = 1.0) -> dict[str, typing.Any]"),
           kClusterTopPDoc)
      .def("bounds", &PythonClusterHead::Bounds, nb::arg("hidden").none(),
           nb::sig("def bounds(self, hidden: typing.Any) "
                   "-> numpy.typing.NDArray[numpy.float64]"),
           kClusterBoundsDoc)
      .def("save", &PythonClusterHead::Save, nb::arg("path"),
           nb::sig("def save(self, path: typing.Any) -> None"), kClusterSaveDoc)
      .def_prop_ro(
          "clusters", [](const PythonClusterHead& self) { return self.clusters().clusters(); },
          "Number of clusters with one row or more.")
      .def_prop_ro(
          "nbytes", [](const PythonClusterHead& self) { return self.clusters().bytes(); },
          "Bytes of the clusters, in memory and as a file.");
}

}  // namespace sluice::python
