// Methods of lists, dicts and cyclers.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/methods/methods.h"

namespace sluice::text::jinja {
namespace {

Value DictItems(Run& run, const Value& self, const Arguments&) {
  List items;
  for (const auto& [key, value] : self.AsDict()->members) {
    run.Charge();
    items.push_back(Value::Of(List{key, value}, true));
  }
  return Value::Of(std::move(items), Value::View::kDict);
}

template <bool kKeys>
Value DictView(Run& run, const Value& self, const Arguments&) {
  List items;
  for (const auto& [key, value] : self.AsDict()->members) {
    run.Charge();
    items.push_back(kKeys ? key : value);
  }
  return Value::Of(std::move(items), Value::View::kDict);
}

Value DictGet(Run& run, const Value& self, const Arguments& arguments) {
  const Value& key = *arguments.Get(0, "key");
  run.CheckKey(key);
  const Value* found = self.AsDict()->Find(run, key);
  if (found == nullptr) found = arguments.Get(1, "default");
  return found == nullptr ? Value() : *found;
}

Value DictCopy(Run& run, const Value& self, const Arguments&) {
  run.ChargeItems(2 * self.AsDict()->members.size());
  return Value::Of(*self.AsDict());
}

Value DictFromKeys(Run& run, const Value&, const Arguments& arguments) {
  Dict made;
  const Value* value = arguments.Get(1, "value");
  for (const Value& key : run.Items(*arguments.Get(0, "iterable"))) {
    run.CheckKey(key);
    made.Set(run, key, value == nullptr ? Value() : *value);
  }
  return Value::Of(std::move(made));
}

Value ListIndex(Run& run, const Value& self, const Arguments& arguments) {
  const List& list = *self.AsList();
  const auto size = static_cast<int64_t>(list.size());
  const auto place = [&](size_t at, std::string_view name, int64_t otherwise) {
    const int64_t given = IntegerArgument(run, arguments, at, name, otherwise);
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const int64_t end = place(2, "stop", size);
  run.ChargeCompared(list.size());
  for (int64_t i = place(1, "start", 0); i < end; ++i) {
    if (IsEqual(run, list[static_cast<size_t>(i)], *arguments.Get(0, "value"))) return Value::Of(i);
  }
  run.Refuse("the index of what is not in the list", "one of its items");
}

Value ListCount(Run& run, const Value& self, const Arguments& arguments) {
  return Value::Of(CountOf(run, *self.AsList(), *arguments.Get(0, "value")));
}

Value ListCopy(Run& run, const Value& self, const Arguments&) { return Value::Of(run.Items(self)); }

Value CyclerNext(Run&, const Value& self, const Arguments&) {
  Value::Cycler& cycler = **self.As<std::shared_ptr<Value::Cycler>>();
  const size_t place = cycler.place;
  cycler.place = (place + 1) % cycler.items.size();
  return cycler.items[place];
}

Value CyclerReset(Run&, const Value& self, const Arguments&) {
  (*self.As<std::shared_ptr<Value::Cycler>>())->place = 0;
  return {};
}

constexpr MethodRow kDictMethods[] = {
    {"copy", "", DictCopy},
    {"fromkeys", "/iterable value?", DictFromKeys},
    {"get", "/key default?", DictGet},
    {"items", "", DictItems},
    {"keys", "", DictView<true>},
    {"values", "", DictView<false>},
};
constexpr MethodRow kTupleMethods[] = {
    {"count", "/value", ListCount},
    {"index", "/value start? stop?", ListIndex},
};
constexpr MethodRow kListMethods[] = {
    {"copy", "", ListCopy},
    {"count", "/value", ListCount},
    {"index", "/value start? stop?", ListIndex},
};
constexpr MethodRow kCyclerMethods[] = {
    {"next", "", CyclerNext},
    {"reset", "", CyclerReset},
};

Value FoundIn(std::span<const MethodRow> rows, const Value& self, std::string_view name) {
  for (const MethodRow& row : rows) {
    if (row.name == name) return BoundMethod(row, self);
  }
  return Value::Missing(name);
}

}  // namespace

Value ContainerMethod(const Value& self, std::string_view name) {
  if (self.AsDict() != nullptr) return FoundIn(kDictMethods, self, name);
  if (const auto* cycler = self.As<std::shared_ptr<Value::Cycler>>()) {
    if (name == "current") return (*cycler)->items[(*cycler)->place];
    return FoundIn(kCyclerMethods, self, name);
  }
  const auto* sequence = self.As<Value::Sequence>();
  if (sequence == nullptr) return Value::Missing(name);
  if (sequence->is_group && name == "grouper") return (*sequence->items)[0];
  if (sequence->is_group && name == "list") return (*sequence->items)[1];
  switch (sequence->view) {
    case Value::View::kNone:
      return sequence->is_tuple ? FoundIn(kTupleMethods, self, name)
                                : FoundIn(kListMethods, self, name);
    case Value::View::kRange:
      return FoundIn(kTupleMethods, self, name);
    default:
      return Value::Missing(name);
  }
}

}  // namespace sluice::text::jinja
