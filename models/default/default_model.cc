#include "sluice/default_model.hpp"

#include <array>
#include <cstddef>

// The symbols of embed.S.
extern "C" {
extern const char sluice_default_chat_template[], sluice_default_chat_template_end[];
extern const char sluice_default_config[], sluice_default_config_end[];
extern const char sluice_default_generation_config[], sluice_default_generation_config_end[];
extern const char sluice_default_tokenizer[], sluice_default_tokenizer_end[];
extern const std::byte sluice_default_weights[], sluice_default_weights_end[];
}

namespace sluice {

CheckpointFiles DefaultModelFiles() {
  static const std::array<std::span<const std::byte>, 1> weights = {
      {{sluice_default_weights, sluice_default_weights_end}}};
  return {
      .text = {.tokenizer = {sluice_default_tokenizer, sluice_default_tokenizer_end},
               .config = {sluice_default_config, sluice_default_config_end},
               .generation_config = {sluice_default_generation_config,
                                     sluice_default_generation_config_end},
               .chat_template = {sluice_default_chat_template, sluice_default_chat_template_end}},
      .safetensors = weights};
}

}  // namespace sluice
