#include "python/values/results.h"

#include <algorithm>
#include <string>

#include "python/errors.h"
#include "python/values/arrays.h"
#include "python/values/objects.h"

namespace sluice::python {
namespace {

// One member of every row, as an array over the structs; of a single row as a number.
template <typename T, typename Struct>
nb::object Column(nb::handle self, std::vector<Struct>& rows, T Struct::* member, bool is_row) {
  static_assert(sizeof(Struct) % sizeof(T) == 0);
  if (is_row && !rows.empty()) return nb::cast(rows[0].*member);
  T* first = rows.empty() ? nullptr : &(rows[0].*member);
  return AsNumpy(self, first, {rows.size()}, {static_cast<int64_t>(sizeof(Struct) / sizeof(T))});
}

// A status as its byte; of a single row as a Status.
template <typename Struct>
nb::object StatusColumn(nb::handle self, std::vector<Struct>& rows, RowStatus Struct::* member,
                        bool is_row) {
  if (is_row && !rows.empty()) return nb::cast(rows[0].*member);
  auto* first = rows.empty() ? nullptr : reinterpret_cast<uint8_t*>(&(rows[0].*member));
  return AsNumpy(self, first, {rows.size()}, {static_cast<int64_t>(sizeof(Struct))});
}

template <typename T>
nb::object Vector(nb::handle self, std::vector<T>& values, bool is_row) {
  if (is_row && values.size() == 1) return nb::cast(values[0]);
  return AsNumpy(self, values.data(), {values.size()});
}

template <typename T>
nb::object Matrix(nb::handle self, std::vector<T>& values, size_t rows, size_t width, bool is_row) {
  if (is_row) return AsNumpy(self, values.data(), {width});
  return AsNumpy(self, values.data(), {rows, width});
}

[[noreturn]] void ThrowNotRequested(const char* what, const char* how) {
  throw nb::attribute_error((std::string(what) + " were not requested: " + how).c_str());
}

// ", statuses=[OK, NAN_INPUT]" where a row is not OK.
template <typename Struct>
std::string StatusText(const std::vector<Struct>& rows, size_t most, bool is_row) {
  const auto is_ok = [](const Struct& row) { return row.status == RowStatus::kOk; };
  if (std::ranges::all_of(rows, is_ok)) return "";
  const auto name = [](const Struct& row) {
    return nb::cast<std::string>(nb::cast(row.status).attr("name"));
  };
  if (is_row) return ", status=" + name(rows[0]);
  std::string text = ", statuses=[";
  for (size_t r = 0; r < rows.size() && r < most; ++r) {
    text.append(r == 0 ? "" : ", ").append(name(rows[r]));
  }
  const auto failed = rows.size() - static_cast<size_t>(std::ranges::count_if(rows, is_ok));
  if (rows.size() > most) text.append(", ... ").append(std::to_string(failed)).append(" not OK");
  return text + "]";
}

// "Cuts(counts=[4, 2])", the first few of many.
template <typename Value, typename Struct>
std::string Repr(const char* type, const char* member_name, const std::vector<Struct>& rows,
                 Value Struct::* member, bool is_row) {
  constexpr size_t kMost = 8;
  std::string text = std::string(type) + "(" + member_name + "=";
  const std::string statuses = StatusText(rows, kMost, is_row);
  if (is_row && !rows.empty()) return text + std::to_string(rows[0].*member) + statuses + ")";
  text += "[";
  for (size_t r = 0; r < rows.size() && r < kMost; ++r) {
    text.append(r == 0 ? "" : ", ").append(std::to_string(rows[r].*member));
  }
  if (rows.size() > kMost)
    text.append(", ... ").append(std::to_string(rows.size())).append(" rows");
  return text + "]" + statuses + ")";
}

// A getter of an array property, with its type for the stub.
#define SLUICE_GETTER(type, name, dtype) \
  nb::sig("def " name "(self) -> numpy.typing.NDArray[numpy." dtype "] | " type)

#define SLUICE_COLUMN(Class, Struct, rows, name, member, dtype, type, doc) \
  def_prop_ro(                                                             \
      name,                                                                \
      [](nb::handle self) {                                                \
        auto& result = nb::cast<Class&>(self);                             \
        return Column(self, result.rows, &Struct::member, result.is_row);  \
      },                                                                   \
      nb::for_getter(SLUICE_GETTER(type, name, dtype)), doc)

constexpr const char* kMassesHow = "masses=True";

void BindCuts(nb::module_& module) {
  const auto masses_of = [](Cuts& cuts) -> std::vector<CutMass>& {
    if (cuts.masses.empty() && !cuts.rows.empty()) ThrowNotRequested("masses", kMassesHow);
    return cuts.masses;
  };
  nb::class_<Cuts>(module, "Cuts", R"(Kept sets, one a row, each as two boundaries.

Kept are the tokens strictly between ``lower`` and ``upper``; of those equal to ``lower`` the first
``ties_kept`` by id; of those equal to ``upper`` all but the first ``ties_dropped``.

    >>> cuts = sluice.select(np.array([[1, 3, 2, 3], [0, 0, 0, 0]], np.float32), top_k=3)
    >>> cuts.counts, cuts.lower, cuts.ties_kept
    (array([3, 3], dtype=int32), array([2., 0.], dtype=float32), array([1, 3], dtype=int32)))")
      .SLUICE_COLUMN(Cuts, Cut, rows, "upper", upper, "float32", "float",
                     "The first kept value, or +inf when the row's first token is kept.")
      .SLUICE_COLUMN(Cuts, Cut, rows, "lower", lower, "float32", "float",
                     "The last kept value; +inf when nothing is kept.")
      .SLUICE_COLUMN(Cuts, Cut, rows, "ties_dropped", ties_dropped, "int32", "int",
                     "Tokens equal to upper that are dropped, the lowest ids.")
      .SLUICE_COLUMN(Cuts, Cut, rows, "ties_kept", ties_kept, "int32", "int",
                     "Tokens equal to lower that are kept, the lowest ids.")
      .SLUICE_COLUMN(Cuts, Cut, rows, "counts", count, "int32", "int", "Tokens that are kept.")
      .def_prop_ro(
          "statuses",
          [](nb::handle self) {
            auto& cuts = nb::cast<Cuts&>(self);
            return StatusColumn(self, cuts.rows, &Cut::status, cuts.is_row);
          },
          nb::for_getter(SLUICE_GETTER("Status", "statuses", "uint8")),
          "What became of each row: the values of sluice.Status.")
      .def_prop_ro(
          "kept_masses",
          [masses_of](nb::handle self) {
            auto& cuts = nb::cast<Cuts&>(self);
            return Column(self, masses_of(cuts), &CutMass::kept, cuts.is_row);
          },
          nb::for_getter(SLUICE_GETTER("int", "kept_masses", "uint64")),
          "The exact mass of each kept set, with masses=True; the heaviest token weighs 2**40.")
      .def_prop_ro(
          "total_masses",
          [masses_of](nb::handle self) {
            auto& cuts = nb::cast<Cuts&>(self);
            return Column(self, masses_of(cuts), &CutMass::total, cuts.is_row);
          },
          nb::for_getter(SLUICE_GETTER("int", "total_masses", "uint64")),
          "The mass that top-p was measured against, with masses=True.")
      .def_prop_ro(
          "margins",
          [masses_of](nb::handle self) {
            auto& cuts = nb::cast<Cuts&>(self);
            return Column(self, masses_of(cuts), &CutMass::margin, cuts.is_row);
          },
          nb::for_getter(SLUICE_GETTER("int", "margins", "uint64")),
          "How far the boundary of top-p is from moving by one token, with masses=True.")
      .def("__len__", [](const Cuts& cuts) { return cuts.rows.size(); })
      .def("__repr__", [](const Cuts& cuts) {
        return Repr("Cuts", "counts", cuts.rows, &Cut::count, cuts.is_row);
      });
}

void BindTokenResults(nb::module_& module) {
  nb::class_<TokenResults>(module, "TokenResults", R"(Sampled tokens, one a row.

    >>> tokens = sluice.sample(np.array([[1, 3, 2], [np.nan, 0, 0]], np.float32), temperature=0)
    >>> tokens.ids, tokens.statuses
    (array([ 1, -1], dtype=int32), array([ 0, 48], dtype=uint8))
    >>> sluice.Status(tokens.statuses[1])
    Status.NAN_INPUT)")
      .SLUICE_COLUMN(TokenResults, TokenResult, rows, "ids", id, "int32", "int",
                     "The tokens; -1 in a row with a status and after a rejected draft.")
      .def_prop_ro(
          "statuses",
          [](nb::handle self) {
            auto& tokens = nb::cast<TokenResults&>(self);
            return StatusColumn(self, tokens.rows, &TokenResult::status, tokens.is_row);
          },
          nb::for_getter(SLUICE_GETTER("Status", "statuses", "uint8")),
          "What became of each row: the values of sluice.Status.")
      .SLUICE_COLUMN(TokenResults, TokenResult, rows, "logprobs", logprob, "float32", "float",
                     "Log-probabilities of the tokens in the requested mode; NaN if not requested.")
      .SLUICE_COLUMN(TokenResults, TokenResult, rows, "ranks", rank, "int32", "int",
                     "How many tokens have a value of at least the token's; 0 if not requested.")
      .def_prop_ro(
          "cuts",
          [](const TokenResults& tokens) {
            if (!tokens.has_cuts) ThrowNotRequested("cuts", "with_cuts=True");
            Cuts cuts;
            cuts.is_row = tokens.is_row;
            for (const TokenResult& row : tokens.rows) cuts.rows.push_back(row.cut);
            cuts.masses = tokens.masses;
            return cuts;
          },
          "The kept sets that the tokens were drawn from, a copy.")
      .def_prop_ro(
          "seeds",
          [](nb::handle self) {
            auto& tokens = nb::cast<TokenResults&>(self);
            if (tokens.seeds.empty() && !tokens.rows.empty()) {
              throw nb::attribute_error("seeds were given, not chosen");
            }
            return Vector(self, tokens.seeds, tokens.is_row);
          },
          nb::for_getter(SLUICE_GETTER("int", "seeds", "uint64")),
          "The random seeds that were chosen because none was given; they replay the draws.")
      .def_prop_ro(
          "top_ids",
          [](nb::handle self) {
            auto& tokens = nb::cast<TokenResults&>(self);
            const auto width = static_cast<size_t>(tokens.top.width);
            if (width == 0) ThrowNotRequested("top_ids", "logprobs=N");
            return Matrix(self, tokens.top.ids, tokens.rows.size(), width, tokens.is_row);
          },
          nb::sig("def top_ids(self) -> numpy.typing.NDArray[numpy.int32]"),
          "The token, then the N most likely ones, with logprobs=N.")
      .def_prop_ro(
          "top_logprobs",
          [](nb::handle self) {
            auto& tokens = nb::cast<TokenResults&>(self);
            const auto width = static_cast<size_t>(tokens.top.width);
            if (width == 0) ThrowNotRequested("top_logprobs", "logprobs=N");
            return Matrix(self, tokens.top.values, tokens.rows.size(), width, tokens.is_row);
          },
          nb::sig("def top_logprobs(self) -> numpy.typing.NDArray[numpy.float32]"),
          "The log-probabilities of top_ids.")
      .def_prop_ro(
          "emitted",
          [](nb::handle self) {
            return Vector(self, nb::cast<TokenResults&>(self).emitted, false);
          },
          nb::sig("def emitted(self) -> numpy.typing.NDArray[numpy.int32]"),
          "Of a verification or a step: how many of each request's rows hold its tokens.")
      .def_prop_ro(
          "path",
          [](nb::handle self) {
            auto& tokens = nb::cast<TokenResults&>(self);
            if (tokens.path.empty()) {
              throw nb::attribute_error("no request of the step had parents=[...]");
            }
            return Vector(self, tokens.path, false);
          },
          nb::sig("def path(self) -> numpy.typing.NDArray[numpy.int32]"),
          "Of a step with trees of drafts: which row of its request's logits gave each token or "
          "status, -1 after those.")
      .def_prop_ro(
          "kept",
          [](nb::handle self) {
            auto& tokens = nb::cast<TokenResults&>(self);
            if (tokens.kept_words == 0) ThrowNotRequested("kept", "kept=True");
            return Matrix(self, tokens.kept, tokens.rows.size(),
                          static_cast<size_t>(tokens.kept_words), false);
          },
          nb::sig("def kept(self) -> numpy.typing.NDArray[numpy.int32]"),
          "Of a step with kept=True: the kept sets as bitmasks.")
      .def("__len__", [](const TokenResults& tokens) { return tokens.rows.size(); })
      .def("__repr__", [](const TokenResults& tokens) {
        return Repr("TokenResults", "ids", tokens.rows, &TokenResult::id, tokens.is_row);
      });
}

template <typename Class, typename T>
nb::object Member(nb::handle self, std::vector<T> Class::* member) {
  return Vector(self, nb::cast<Class&>(self).*member, false);
}

void BindCandidates(nb::module_& module) {
  nb::class_<CandidateSets>(module, "Candidates",
                            R"(The kept tokens of all rows, one row after the other.

Those of row r stand at offsets[r]:offsets[r + 1].

    >>> kept = sluice.candidates(np.array([1, 3, 2, 0], np.float32), top_k=2, order="rank")
    >>> kept.ids, kept.logits, kept.offsets.tolist()
    (array([1, 2], dtype=int32), array([3., 2.], dtype=float32), [0, 2]))")
      .def_prop_ro(
          "offsets", [](nb::handle self) { return Member(self, &CandidateSets::offsets); },
          nb::sig("def offsets(self) -> numpy.typing.NDArray[numpy.int64]"),
          "Where each row begins; rows + 1 elements.")
      .def_prop_ro(
          "ids", [](nb::handle self) { return Member(self, &CandidateSets::ids); },
          nb::sig("def ids(self) -> numpy.typing.NDArray[numpy.int32]"), "The kept tokens.")
      .def_prop_ro(
          "logits", [](nb::handle self) { return Member(self, &CandidateSets::logits); },
          nb::sig("def logits(self) -> numpy.typing.NDArray[numpy.float32]"), "Their logits.")
      .def_prop_ro(
          "weights", [](nb::handle self) { return Member(self, &CandidateSets::weights); },
          nb::sig("def weights(self) -> numpy.typing.NDArray[numpy.uint64]"),
          "Their weights at the temperature of the draw; the row's maximum weighs 2**40.")
      .def("__len__", [](const CandidateSets& sets) { return sets.offsets.size() - 1; })
      .def("__repr__", [](const CandidateSets& sets) {
        return "Candidates(rows=" + std::to_string(sets.offsets.size() - 1) +
               ", tokens=" + std::to_string(sets.ids.size()) + ")";
      });
}

void BindTopkResults(nb::module_& module) {
  nb::class_<TopkResults>(module, "TopkResults", R"(The k largest scores of each row.

    >>> best = sluice.topk(np.array([1, 3, 2, 0], np.float32), 2, sorted=True)
    >>> best.indices, best.values, best.statuses
    (array([1, 2], dtype=int32), array([3., 2.], dtype=float32), Status.OK))")
      .def_prop_ro(
          "indices",
          [](nb::handle self) {
            auto& top = nb::cast<TopkResults&>(self);
            return Matrix(self, top.indices, top.statuses.size(), static_cast<size_t>(top.k),
                          top.is_row);
          },
          nb::sig("def indices(self) -> numpy.typing.NDArray[numpy.int32]"),
          "Where they stand; -1 after the last of a short row.")
      .def_prop_ro(
          "values",
          [](nb::handle self) {
            auto& top = nb::cast<TopkResults&>(self);
            return Matrix(self, top.values, top.statuses.size(), static_cast<size_t>(top.k),
                          top.is_row);
          },
          nb::sig("def values(self) -> numpy.typing.NDArray[numpy.float32]"),
          "The scores; -inf after the last.")
      .def_prop_ro(
          "statuses",
          [](nb::handle self) {
            auto& top = nb::cast<TopkResults&>(self);
            if (top.is_row) return nb::cast(top.statuses[0]);
            return AsNumpy(self, reinterpret_cast<uint8_t*>(top.statuses.data()),
                           {top.statuses.size()});
          },
          nb::for_getter(SLUICE_GETTER("Status", "statuses", "uint8")),
          "What became of each row: the values of sluice.Status.")
      .def("__len__", [](const TopkResults& top) { return top.statuses.size(); })
      .def("__repr__", [](const TopkResults& top) {
        return "TopkResults(rows=" + std::to_string(top.statuses.size()) +
               ", k=" + std::to_string(top.k) + ")";
      });
}

#undef SLUICE_COLUMN
#undef SLUICE_GETTER

}  // namespace

void FitChecked(const char* what, size_t capacity, size_t size) {
  if (capacity == 0 || size <= capacity) return;
  ThrowValue(std::string("out.").append(what).append(".size()"), std::to_string(capacity),
             "at least " + std::to_string(size));
}

void TokenResults::Begin(bool of_row, bool with_cuts) {
  is_row = of_row;
  has_cuts = with_cuts;
  seeds.clear();
  top.Resize(rows.size(), 0);
  emitted.clear();
  path.clear();
  kept.clear();
  kept_words = 0;
  masses.clear();
}

void TopLists::Resize(size_t rows, int64_t new_width) {
  const size_t size = rows * static_cast<size_t>(new_width);
  Fit("top_ids", ids, size);
  Fit("top_logprobs", values, size);
  width = static_cast<int32_t>(new_width);
}

const Cuts& CutsFrom(std::string_view name, nb::handle object) {
  const auto* const cuts = ObjectIn<Cuts>(object);
  if (cuts == nullptr) ThrowType(name, Describe(object), "sluice.Cuts");
  return *cuts;
}

void BindResults(nb::module_& module) {
  nb::enum_<RowStatus>(module, "Status", nb::is_arithmetic(), R"(What became of a row.

    >>> sluice.sample(np.array([np.nan, 1], np.float32)).statuses
    Status.NAN_INPUT)")
      .value("OK", RowStatus::kOk)
      .value("EMPTY_SUPPORT", RowStatus::kEmptySupport, "Every token is masked.")
      .value("POS_INF_INPUT", RowStatus::kPosInfInput, "An unmasked value is +inf.")
      .value("NAN_INPUT", RowStatus::kNanInput, "An unmasked value is NaN.")
      .value("BAD_PARAM", RowStatus::kBadParam, "A parameter of this row is out of range.");
  BindCuts(module);
  BindTokenResults(module);
  BindCandidates(module);
  BindTopkResults(module);
}

}  // namespace sluice::python
