# What `make install` puts where: headers, both libraries, the tool and the trainer, man pages, firstbad.pc and the CMake package.
if(NOT FB_TOP)
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
