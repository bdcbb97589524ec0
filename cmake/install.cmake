# What `make install` puts where: headers, both libraries, the tool and the trainer, the Python package, man pages, firstbad.pc and the
# CMake package.
if(NOT FB_TOP)
  return()
endif()

# A wheel has the library and the tool inside the package, which scikit-build-core itself puts in, and nothing else. Under one name:
# links become copies in a wheel.
if(SKBUILD)
  install(FILES $<TARGET_FILE:firstbad> DESTINATION firstbad/_native RENAME ${CMAKE_SHARED_LIBRARY_PREFIX}firstbad${CMAKE_SHARED_LIBRARY_SUFFIX})
  install(PROGRAMS $<TARGET_FILE:firstbad_cli> DESTINATION firstbad/_native)
  return()
endif()

include(CMakePackageConfigHelpers)
set(FB_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/firstbad)

install(TARGETS firstbad firstbad_static EXPORT firstbadTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/firstbad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
foreach(program firstbad_cli firstbad-gpt firstbad_gpt)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# `firstbad run` finds it from its own place, and loads it by path: it stands on no sys.path until somebody puts it there.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/firstbad DESTINATION ${CMAKE_INSTALL_LIBDIR}/firstbad/python
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

foreach(section 1 3 5 7)
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()

# The way from the folder of firstbad.pc back to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH FB_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" FB_PC_TO_PREFIX "${FB_PC_TO_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/firstbad.pc.in ${PROJECT_BINARY_DIR}/firstbad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/firstbad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/firstbadConfig.cmake.in ${PROJECT_BINARY_DIR}/firstbadConfig.cmake
  INSTALL_DESTINATION ${FB_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface, and says so.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/firstbadConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/firstbadConfig.cmake ${PROJECT_BINARY_DIR}/firstbadConfigVersion.cmake DESTINATION ${FB_CMAKE_DIR})
install(EXPORT firstbadTargets NAMESPACE firstbad:: DESTINATION ${FB_CMAKE_DIR})
