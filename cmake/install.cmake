# What an installation has beside the command and the library: a package for CMake, and what a wheel brings.
include(CMakePackageConfigHelpers)

set(SENTINEL_SHARE ${CMAKE_INSTALL_DATAROOTDIR})
if(DEFINED SKBUILD_DATA_DIR)  # of a virtual environment, where `man` and shells look
  set(SENTINEL_SHARE ${SKBUILD_DATA_DIR}/share)
endif()
set(SENTINEL_ZSH site-functions CACHE STRING "The folder of share/zsh that completions go into")

# find_package(Sentinel), relative to its own place, so that an installation may be moved.
function(sentinel_install_package)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sentinel)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SentinelConfig.cmake.in
    ${CMAKE_BINARY_DIR}/package/SentinelConfig.cmake INSTALL_DESTINATION ${folder})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/SentinelConfigVersion.cmake
    COMPATIBILITY SameMajorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/package/SentinelConfig.cmake
    ${CMAKE_BINARY_DIR}/package/SentinelConfigVersion.cmake DESTINATION ${folder})
  install(EXPORT SentinelTargets NAMESPACE Sentinel:: DESTINATION ${folder})
endfunction()

# The solvers are loaded by name, where they are used. A wheel brings them, for a system that has none.
set(SENTINEL_SOLVERS "" CACHE STRING "Libraries of solvers to install beside Sentinel's own")
foreach(solver ${SENTINEL_SOLVERS})
  file(REAL_PATH ${solver} file)
  get_filename_component(name ${solver} NAME)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/sentinel/solvers RENAME ${name})
endforeach()

# `import sentinel` for programs that mark their steps, and the way to the command.
if(DEFINED SKBUILD_PLATLIB_DIR)
  install(FILES ${PROJECT_SOURCE_DIR}/libsentinel/python/sentinel/__init__.py
    ${PROJECT_SOURCE_DIR}/libsentinel/python/sentinel/_attach.py
    ${PROJECT_SOURCE_DIR}/libsentinel/python/sentinel/_prebuilt.py
    ${PROJECT_SOURCE_DIR}/tfplugin/python/sentinel/_tensorflow.py
    ${PROJECT_SOURCE_DIR}/tfplugin/python/sentinel/tensorflow.py
    ${PROJECT_SOURCE_DIR}/tools/wheel/_command.py DESTINATION ${SKBUILD_PLATLIB_DIR}/sentinel)
endif()
