# Programs and the extension of Python that need libc alone: SLUICE_STATIC_LIBRARIES is the folder that
# packaging/static_libraries.sh filled. What is compiled is the same as without; the archives are
# linked in the place of the shared libraries. Included where the targets below were found.

foreach(pair IN ITEMS "PkgConfig::PCRE2 pcre2-8" "PkgConfig::UTF8PROC utf8proc" "PkgConfig::ZEROMQ zmq"
                      "simdjson::simdjson simdjson" "prometheus-cpp::core prometheus-cpp-core")
  separate_arguments(pair)
  list(POP_FRONT pair target library)
  set(archive ${SLUICE_STATIC_LIBRARIES}/lib/lib${library}.a)
  if(NOT EXISTS ${archive})
    message(FATAL_ERROR "Sluice: ${archive} not found; packaging/static_libraries.sh makes it")
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL INTERFACE_LIBRARY)
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES ${archive})
  else()
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
    endforeach()
  endif()
endforeach()

# sluice_link_statically(TARGET): the C++ run-time libraries are inside it, and its symbols are those of
# glibc 2.34 and older. GNU ld, because one whose own unwinder stays next to libgcc's aborts at a throw.
function(sluice_link_statically target)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/packaging/glibc_2_34.c)
  set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
  target_link_options(${target} PRIVATE -fuse-ld=bfd -static-libstdc++ -static-libgcc
                      LINKER:--as-needed LINKER:--exclude-libs,ALL LINKER:--gc-sections -s)
endfunction()
