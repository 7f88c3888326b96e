// The tests of bad arguments of the C++ interface once more, through C: the same codes and texts.
#define SLUICE_OVER_C 1
#include "tests/sampler/bad_request_test.cc"
