// No test: it has the precompiled header of all others, see cmake/SluiceTests.cmake.
