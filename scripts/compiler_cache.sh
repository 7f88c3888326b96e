# To be sourced. Where ccache is installed, what one build compiles the next one takes from there: the
# wheel and the preset cuda have the library's files with the same flags as the preset release.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_DIR="${CCACHE_DIR:-$PWD/build/ccache}"
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # or tests, with their precompiled header, miss
fi
