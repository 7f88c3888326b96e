// The encoder of one piece of text: a model over a vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

// Memory of one encoding, which pieces share.
struct ModelScratch {
  struct Symbol {
    int32_t id;
    uint32_t rank;  // of the merge with the next one
    uint32_t previous;
    uint32_t next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t at;
  };
  // The best way to cut a text that ends at some place: its last token.
  struct Cut {
    double score;
    uint32_t begin;
    int32_t token;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<Cut> cuts;
  std::vector<uint32_t> ends;
  std::vector<int32_t> longest;  // the longest token that begins at each byte
  std::string text;
};

class Model {
 public:
  virtual ~Model() = default;

  // Appends the ids of a piece of valid UTF-8 that is not empty.
  virtual void Encode(std::string_view piece, ModelScratch& scratch,
                      std::vector<int32_t>& ids) const = 0;
};

}  // namespace sluice::text
