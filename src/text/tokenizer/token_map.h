// Maps of the encoder: bytes to the id of a token, and a pair of ids to what they merge into. Open
// addressing in powers of two, built once.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

// Keys come from files of strangers, which may be made so that all fall into one place: the secrets
// of their hashes are drawn for each process. Nothing that is visible depends on them.
struct HashSecrets {
  uint64_t a;
  uint64_t b;
};
const HashSecrets& ProcessSecrets();

// Both halves of the product: no bits of two keys cancel each other whatever the secret is, as they
// do in one half.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t HashOf(std::string_view bytes, const HashSecrets& secrets) {
  uint64_t hash = secrets.a ^ bytes.size();
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = Mix(hash ^ word, secrets.b);
  }
  uint64_t word = 0;
  if (left >= 4) {
    uint32_t low, high;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + left - 4, 4);
    word = uint64_t{high} << 32 | low;
  } else if (left > 0) {
    word = static_cast<uint8_t>(at[0]) | uint64_t{static_cast<uint8_t>(at[left / 2])} << 8 |
           uint64_t{static_cast<uint8_t>(at[left - 1])} << 16;
  }
  return Mix(hash ^ word, secrets.b);
}

class TokenMap {
 public:
  explicit TokenMap(size_t tokens = 0)
      : slots_(std::bit_ceil(2 * tokens + 2)), mask_(slots_.size() - 1) {}

  // The first id of a token stays. No more of them than were announced.
  void Add(std::string_view token, int32_t id) {
    const uint64_t hash = HashOf(token, secrets_);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.id < 0) {
        slot = {static_cast<uint32_t>(hash >> 32), id, static_cast<uint32_t>(bytes_.size()),
                static_cast<uint32_t>(token.size())};
        bytes_.append(token);
        return;
      }
      if (Matches(slot, hash, token)) return;
    }
  }

  // f(std::string_view token, int32_t id) for each of them, in no order.
  template <typename F>
  void ForEach(F f) const {
    for (const Slot& slot : slots_) {
      if (slot.id >= 0) f(std::string_view(bytes_).substr(slot.begin, slot.size), slot.id);
    }
  }

  int32_t Find(std::string_view token) const {  // -1: none
    const uint64_t hash = HashOf(token, secrets_);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (Matches(slot, hash, token)) return slot.id;
    }
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    uint32_t begin = 0;
    uint32_t size = 0;
  };

  bool Matches(const Slot& slot, uint64_t hash, std::string_view token) const {
    return slot.hash == hash >> 32 &&
           std::string_view(bytes_.data() + slot.begin, slot.size) == token;
  }

  std::string bytes_;
  HashSecrets secrets_ = ProcessSecrets();
  std::vector<Slot> slots_;
  size_t mask_;
};

// For each byte the token that is spelled <0x00> to <0xFF>; -1: none.
std::array<int32_t, 256> ByteIds(const TokenMap& tokens);

// Ids of 22 bits and ranks of 20 in one word, so that a table of 256 thousand merges has 4 MB.
class MergeMap {
 public:
  static constexpr uint32_t kNone = (1u << 20) - 1;  // as a rank: no such merge

  explicit MergeMap(size_t merges = 0)
      : slots_(std::bit_ceil(2 * merges + 2), kEmpty), mask_(slots_.size() - 1) {}

  void Add(int32_t left, int32_t right, uint32_t rank) {  // the last rank of a pair stays
    const uint64_t key = Key(left, right);
    for (size_t at = Mix(key ^ secrets_.a, secrets_.b) & mask_;; at = (at + 1) & mask_) {
      if (slots_[at] != kEmpty && slots_[at] >> 20 != key) continue;
      slots_[at] = key << 20 | rank;
      return;
    }
  }

  uint32_t Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t at = Mix(key ^ secrets_.a, secrets_.b) & mask_;; at = (at + 1) & mask_) {
      const uint64_t slot = slots_[at];
      if (slot >> 20 == key) return static_cast<uint32_t>(slot & kNone);
      if (slot == kEmpty) return kNone;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 22 | static_cast<uint64_t>(right);
  }

  HashSecrets secrets_ = ProcessSecrets();
  std::vector<uint64_t> slots_;
  size_t mask_;
};

}  // namespace sluice::text
