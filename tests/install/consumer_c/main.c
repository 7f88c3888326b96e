/* A C program that uses the installed library: says which version it got, and fails if that is not
 * the one named on the command line. A sampler, and an error that is thrown inside and caught
 * there, make sure that the library links with its C++ runtime. */
#include <sluice/sluice.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  sluice_sampler_options options;
  sluice_sampler* sampler;
  int32_t slots = 0;
  printf("Sluice %s, ABI %u\n", sluice_version(), (unsigned)sluice_abi_version());
  sluice_sampler_options_init(&options);
  if (sluice_sampler_create(&options, &sampler) != SLUICE_INVALID_VALUE) return 1;
  printf("%s\n", sluice_last_error());
  options.vocab = 4;
  if (sluice_sampler_create(&options, &sampler) != SLUICE_OK) return 1;
  if (sluice_sampler_free_slots(sampler, &slots) != SLUICE_OK || slots != 256) return 1;
  sluice_sampler_destroy(sampler);
  return argc == 2 && strcmp(argv[1], sluice_version()) == 0 ? 0 : 1;
}
