// The demonstration as JSON: one object, everything that the text shows and more digits of it.
#include "cli/demo/demo_report.h"
#include "cli/demo/demo_row.h"
#include "cli/inspect/stage_text.h"
#include "json/params_writer.h"
#include "json/writer.h"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

void WriteToken(JsonWriter& json, int32_t id) {
  json.Key("id").Value(id);
  json.Key("word").Value(DemoWord(id));
}

void WriteAdjustment(JsonWriter& json, const AdjustStage& stage) {
  json.Key("name").Value(stage.name);
  json.Key("parameter").Value(stage.parameter);
  json.Key("changes").Array([&] {
    for (const LogitChange& change : stage.changes) {
      json.Object([&] {
        WriteToken(json, change.id);
        json.Key("before").Value(change.before);
        json.Key("after").Value(change.after);
      });
    }
  });
}

void WriteCandidate(JsonWriter& json, const CandidateRow& candidate) {
  WriteToken(json, candidate.id);
  json.Key("logit").Value(candidate.logit);
  json.Key("adjusted").Value(candidate.adjusted);
  json.Key("probability").Value(candidate.probability);
  json.Key("kept").Value(candidate.is_kept);
  json.Key("fate").Value(candidate.fate);
}

void WriteMass(JsonWriter& json, const CutMass& mass) {
  json.Key("kept").Value(mass.kept);
  json.Key("total").Value(mass.total);
  json.Key("margin");
  if (mass.margin == CutMass{}.margin) {
    json.Null();
  } else {
    json.Value(mass.margin);
  }
}

void WriteScore(JsonWriter& json, const DrawScore& score) {
  WriteToken(json, score.id);
  json.Key("probability").Value(score.probability);
  json.Key("log2_weight").Value(score.log_weight);
  json.Key("noise").Value(score.noise);
  json.Key("score").Value(score.score);
  json.Key("times_drawn").Value(score.times_drawn);
}

void WriteFilter(JsonWriter& json, const FilterStage& stage) {
  json.Key("name").Value(stage.name);
  json.Key("parameter").Value(stage.parameter);
  json.Key("tokens_left").Value(stage.tokens_left);
  json.Key("mass_left").Value(stage.mass_left);
}

void WriteProof(JsonWriter& json, const Proof& proof) {
  json.Key("way").Value(proof.way);
  json.Key("id").Value(proof.id);
  json.Key("same").Value(proof.holds);
}

template <typename Items, typename Write>
void WriteAll(JsonWriter& json, const char* name, const Items& items, Write write) {
  json.Key(name).Array([&] {
    for (const auto& item : items) json.Object([&] { write(json, item); });
  });
}

}  // namespace

void PrintDemoJson(const DemoReport& report, std::ostream& out) {
  JsonWriter json(out);
  json.Object([&] {
    json.Key("version").Value(kVersionString);
    json.Key("logits").Value("generated");
    json.Key("prompt").Value(DemoText(DemoPrompt()));
    json.Key("output").Value(DemoText(DemoOutput()));
    json.Key("vocab").Value(kDemoVocab);
    json.Key("parameters").Object([&] { ParamsWriter(json).WriteFields(report.params); });
    json.Key("status").Value(Name(report.token.status));
    json.Key("token").Object([&] { WriteToken(json, report.token.id); });
    json.Key("position").Value(report.key.position);
    WriteAll(json, "candidates", report.candidates, WriteCandidate);
    WriteAll(json, "adjustments", report.adjustments, WriteAdjustment);
    WriteAll(json, "filters", report.filters, WriteFilter);
    json.Key("cut").Object([&] { WriteCut(json, report.token.cut); });
    json.Key("ties_at_lower").Value(report.ties_at_lower);
    json.Key("mass").Object([&] { WriteMass(json, report.mass); });
    json.Key("draws").Value(kDemoDraws);
    WriteAll(json, "kept", report.scores, WriteScore);
    WriteLogprobs(json, report.logprobs);
    WriteAll(json, "proofs", report.proofs, WriteProof);
  });
  out << '\n';
}

}  // namespace sluice::cli
