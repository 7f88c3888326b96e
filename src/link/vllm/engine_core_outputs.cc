#include "link/vllm/engine_core_outputs.h"

#include <bit>
#include <cstring>

#include "link/wire/frame_reader.h"

namespace sluice::link::vllm {
namespace {

constexpr int8_t kRawView = 3;  // the extension with an array's elements as its bytes
constexpr size_t kMostOutputs = 1 << 16;

// Places of the array EngineCoreOutputs, and of EngineCoreOutput.
enum OutputsField : size_t { kOutputs = 1, kUtilityOutput = 4 };
enum OutputField : size_t {
  kRequestId = 0,
  kIds = 1,
  kLogprobs = 2,
  kPromptLogprobs = 3,
  kFinish = 5,
  kPrefill = 11,
  kError = 18,
};

enum class ElementType : uint8_t { kInt32, kInt64, kFloat32, kFloat64 };

// numpy and torch spell the same types; the machines at both ends keep the low byte first.
std::optional<ElementType> ElementTypeOf(std::string_view name) {
  if (name == "<i4" || name == "int32") return ElementType::kInt32;
  if (name == "<i8" || name == "int64") return ElementType::kInt64;
  if (name == "<f4" || name == "float32") return ElementType::kFloat32;
  if (name == "<f8" || name == "float64") return ElementType::kFloat64;
  return std::nullopt;
}
size_t SizeOf(ElementType type) {
  return type == ElementType::kInt32 || type == ElementType::kFloat32 ? 4 : 8;
}

struct Shape {
  size_t rows = 0;
  size_t columns = 0;
};

// Where a list lies; spans are made when nothing moves any more.
struct Place {
  size_t begin = 0;
  size_t size = 0;
};
struct PlacedLists {
  Shape shape;
  Place ids, values, ranks;
};
struct PlacedOutput {
  Place ids;
  std::optional<PlacedLists> logprobs, prompt_logprobs;
};

class OutputsReader {
 public:
  OutputsReader(std::span<const std::string_view> frames, EngineCoreOutputs& outputs)
      : frames_(frames), outputs_(outputs), reader_(frames[0]) {}

  std::string Read() {
    outputs_.outputs.clear();
    outputs_.numbers.clear();
    outputs_.reals.clear();
    outputs_.answered.reset();
    const size_t fields = reader_.Array();
    for (size_t field = 0; field < fields && !reader_.failed(); ++field) {
      if (field == kOutputs) {
        ReadAll();
      } else if (field == kUtilityOutput && !reader_.TakeNil()) {
        ReadAnswer();
      } else if (field != kUtilityOutput) {
        reader_.Skip();
      }
    }
    reader_.End();
    if (reader_.failed()) return reader_.Failure();
    Point();
    return {};
  }

 private:
  void ReadAll() {
    const size_t size = reader_.Array(3);
    if (size > kMostOutputs) reader_.Fail("a list that is too long");
    for (size_t i = 0; i < size && !reader_.failed(); ++i) ReadOne();
  }

  void ReadAnswer() {
    const size_t fields = reader_.Array();
    if (fields < 1) reader_.Fail("an answer without its number");
    outputs_.answered = reader_.Integer<int64_t>();
    for (size_t field = 1; field < fields && !reader_.failed(); ++field) reader_.Skip();
  }

  void ReadOne() {
    EngineCoreOutput output;
    PlacedOutput placed;
    const size_t fields = reader_.Array();
    if (fields < 2) reader_.Fail("an output without its fields");
    for (size_t field = 0; field < fields && !reader_.failed(); ++field) {
      if (field == kRequestId) {
        output.request_id = reader_.String();
      } else if (field == kIds) {
        placed.ids = ReadIds();
      } else if (reader_.TakeNil()) {
        continue;
      } else if (field == kLogprobs) {
        placed.logprobs = ReadLists();
      } else if (field == kPromptLogprobs) {
        placed.prompt_logprobs = ReadLists();
      } else if (field == kFinish) {
        output.finish = reader_.Enum(FinishReason::kRepetition);
      } else if (field == kPrefill) {
        ReadPrefill(output);
      } else if (field == kError) {
        ReadError(output);
      } else {
        reader_.Skip();
      }
    }
    outputs_.outputs.push_back(output);
    placed_.push_back(placed);
  }

  Place ReadIds() {
    const Place place{outputs_.numbers.size(), reader_.Array()};
    for (size_t i = 0; i < place.size && !reader_.failed(); ++i) {
      outputs_.numbers.push_back(reader_.Integer<int32_t>());
    }
    return place;
  }

  PlacedLists ReadLists() {
    PlacedLists lists;
    const size_t fields = reader_.Array();
    if (fields < 3) reader_.Fail("log-probabilities without their fields");
    Shape values, ranks;
    lists.ids = ReadArray(outputs_.numbers, lists.shape);
    lists.values = ReadArray(outputs_.reals, values);
    lists.ranks = ReadArray(outputs_.numbers, ranks);
    for (size_t field = 3; field < fields && !reader_.failed(); ++field) reader_.Skip();
    const Shape& shape = lists.shape;
    const bool is_whole = shape.columns > 0 && values.rows == shape.rows &&
                          values.columns == shape.columns && ranks.rows == shape.rows &&
                          lists.ranks.size == shape.rows;
    if (!is_whole) reader_.Fail("log-probabilities of different shapes");
    return lists;
  }

  // An array of numpy or torch: the type of its elements, its shape, and these or their frame.
  template <typename T>
  Place ReadArray(std::vector<T>& all, Shape& shape) {
    if (reader_.Array() != 3) reader_.Fail("no array of a type and a shape");
    const std::optional<ElementType> type = ElementTypeOf(reader_.String());
    if (!type.has_value()) reader_.Fail("elements of another type");
    const size_t dimensions = reader_.Array();
    if (dimensions < 1 || dimensions > 2) reader_.Fail("an array of another shape");
    shape.rows = reader_.Integer<uint32_t>();
    shape.columns = dimensions == 2 ? reader_.Integer<uint32_t>() : 1;
    const std::string_view bytes = reader_.IsInteger() ? NextFrame() : reader_.Extension(kRawView);
    if (reader_.failed()) return {};
    const size_t count = shape.rows * shape.columns;  // of two numbers of 32 bits
    if (bytes.size() % SizeOf(*type) != 0 || bytes.size() / SizeOf(*type) != count) {
      reader_.Fail("an array of another size than its shape");
      return {};
    }
    const Place place{all.size(), count};
    Append(bytes, *type, all);
    return place;
  }

  // Each is used once, or a few bytes would stand for any number of them. Some are of fields that
  // are passed over.
  std::string_view NextFrame() {
    const auto number = reader_.Integer<size_t>();
    if (number < next_frame_ || number >= frames_.size()) {
      reader_.Fail("a frame that is not one of the next");
      return {};
    }
    next_frame_ = number + 1;
    return frames_[number];
  }

  template <typename T>
  void Append(std::string_view bytes, ElementType type, std::vector<T>& all) {
    if (type == ElementType::kInt32) return AppendAs<int32_t>(bytes, all);
    if (type == ElementType::kInt64) return AppendAs<int64_t>(bytes, all);
    if (type == ElementType::kFloat32) return AppendAs<float>(bytes, all);
    AppendAs<double>(bytes, all);
  }

  template <typename Element, typename T>
  void AppendAs(std::string_view bytes, std::vector<T>& all) {
    if (std::is_floating_point_v<Element> != std::is_floating_point_v<T>) {
      reader_.Fail("elements of another type");
      return;
    }
    for (size_t at = 0; at < bytes.size(); at += sizeof(Element)) {
      Element element;
      std::memcpy(&element, bytes.data() + at, sizeof element);
      if constexpr (!std::is_floating_point_v<Element>) {
        if (!std::in_range<int32_t>(element)) return reader_.Fail("a number outside its range");
      }
      all.push_back(static_cast<T>(element));
    }
  }

  void ReadPrefill(EngineCoreOutput& output) {
    const size_t entries = reader_.Map();
    for (size_t i = 0; i < entries && !reader_.failed(); ++i) {
      if (reader_.String() == "num_cached_tokens") {
        output.cached_tokens = reader_.Integer<int64_t>(0, INT32_MAX);
      } else {
        reader_.Skip();
      }
    }
  }

  void ReadError(EngineCoreOutput& output) {
    const size_t entries = reader_.Map();
    for (size_t i = 0; i < entries && !reader_.failed(); ++i) {
      const std::string_view key = reader_.String();
      if (key == "code") {
        output.error_code = reader_.String();
      } else if (key == "message") {
        output.error_message = reader_.String();
      } else {
        reader_.Skip();
      }
    }
  }

  template <typename T>
  static std::span<const T> At(const std::vector<T>& all, Place place) {
    return std::span<const T>(all).subspan(place.begin, place.size);
  }
  void PointLists(const std::optional<PlacedLists>& placed, std::optional<TokenLists>& lists) {
    if (!placed.has_value()) return;
    lists = TokenLists{.rows = placed->shape.rows,
                       .width = placed->shape.columns,
                       .ids = At(outputs_.numbers, placed->ids),
                       .values = At(outputs_.reals, placed->values),
                       .ranks = At(outputs_.numbers, placed->ranks)};
  }
  void Point() {
    for (size_t i = 0; i < placed_.size(); ++i) {
      EngineCoreOutput& output = outputs_.outputs[i];
      output.ids = At(outputs_.numbers, placed_[i].ids);
      PointLists(placed_[i].logprobs, output.logprobs);
      PointLists(placed_[i].prompt_logprobs, output.prompt_logprobs);
    }
  }

  std::span<const std::string_view> frames_;
  EngineCoreOutputs& outputs_;
  FrameReader reader_;
  std::vector<PlacedOutput> placed_;
  size_t next_frame_ = 1;
};

}  // namespace

std::string ReadOutputs(std::span<const std::string_view> frames, EngineCoreOutputs& outputs) {
  if (frames.empty()) return "no frame";
  return OutputsReader(frames, outputs).Read();
}

}  // namespace sluice::link::vllm
