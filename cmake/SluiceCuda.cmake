# Finds out whether CUDA can be built and, if so, for which GPUs.
include(CheckLanguage)

if(NOT DEFINED SLUICE_CUDA)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(SLUICE_CUDA_DEFAULT ON)
  else()
    set(SLUICE_CUDA_DEFAULT OFF)
    message(STATUS "Sluice: no CUDA compiler found, the CUDA backend is off")
  endif()
endif()

# A macro: enable_language and the variables it sets belong to the caller's scope.
macro(sluice_enable_cuda)
  # Asked before enable_language, which fills the variable in. Ampere and Hopper as machine code,
  # and PTX so that newer chips run too.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual")
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc 12 knows it, CMake 3.25.1 does not know that
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  message(STATUS "Sluice: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
endmacro()
