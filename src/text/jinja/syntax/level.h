// One level of nesting of a run, for as long as it lives.
#pragma once

#include "text/jinja/run.h"

namespace sluice::text::jinja {

class Run::Level {
 public:
  explicit Level(Run& run) : run_(run) {
    if (++run_.depth_ > 4 * run_.limits_.max_depth) {
      --run_.depth_;
      run_.Refuse("deeper nesting of calls", "less than the limit max_depth");
    }
  }
  ~Level() { --run_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Run& run_;
};

}  // namespace sluice::text::jinja
