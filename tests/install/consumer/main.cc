// A project that uses the installed library: says which version it got, and fails if that is not
// the one named on the command line. A Sampler makes sure that the library links.
#include <iostream>
#include <sluice/sluice.hpp>
#include <string_view>

int main(int argc, char** argv) {
  std::cout << "Sluice " << sluice::kVersionString << '\n';
  if (sluice::Sampler({.vocab = 4}).FreeSlots() != 256) return 1;
  return argc == 2 && std::string_view(argv[1]) == sluice::kVersionString ? 0 : 1;
}
