# Installs the library for find_package(Sluice) and for pkg-config.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sluice ${PROJECT_BINARY_DIR}/include/sluice
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def" PATTERN research EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(cuda_targets)
if(SLUICE_CUDA)
  set(cuda_targets sluice_cuda)
  if(TARGET sluice_nccl)  # who links it links NCCL as well
    list(APPEND cuda_targets sluice_nccl)
  endif()
endif()
set(text_targets)
set(SLUICE_TEXT OFF)
if(TARGET sluice_text)
  set(text_targets sluice_text)
  set(SLUICE_TEXT ON)
endif()
set(model_targets)
foreach(target IN ITEMS sluice_grammar sluice_model sluice_engine sluice_link sluice_json sluice_server
                     sluice_default_model)
  if(TARGET ${target})
    list(APPEND model_targets ${target})
  endif()
endforeach()
install(TARGETS sluice_core sluice_c sluice_c_static ${cuda_targets} ${text_targets}
                ${model_targets} EXPORT SluiceTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION ${package_dir})

# Methods of papers to compare with, in a component of their own, which only its name installs:
# `cmake --install BUILD` and then `cmake --install BUILD --component research`.
set(research_targets sluice_research)
if(SLUICE_CUDA)
  list(APPEND research_targets sluice_research_cuda)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sluice/research
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice COMPONENT research EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.hpp")
install(TARGETS ${research_targets} EXPORT SluiceResearchTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT research EXCLUDE_FROM_ALL)
install(EXPORT SluiceResearchTargets NAMESPACE Sluice:: DESTINATION ${package_dir}
        COMPONENT research EXCLUDE_FROM_ALL)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SluiceConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
              ${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
        DESTINATION ${package_dir})

# The prefix is found from where the .pc file lies, so that an installed tree can be moved.
file(RELATIVE_PATH SLUICE_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
     ${CMAKE_INSTALL_PREFIX})
list(TRANSFORM SLUICE_CXX_RUNTIME PREPEND -l OUTPUT_VARIABLE SLUICE_PC_CXX_RUNTIME)
list(JOIN SLUICE_PC_CXX_RUNTIME " " SLUICE_PC_CXX_RUNTIME)
foreach(name IN ITEMS sluice sluice-c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
