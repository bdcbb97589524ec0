# Each tests/unit/test_*.c, tests/property/test_*.c and tests/fault/test_*.c is one cmocka program against the static library,
# with the internal headers in reach.
find_library(CMOCKA_LIBRARY cmocka REQUIRED)
file(GLOB FB_TEST_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/tests/unit/test_*.c ${PROJECT_SOURCE_DIR}/tests/property/test_*.c ${PROJECT_SOURCE_DIR}/tests/fault/test_*.c)
foreach(source ${FB_TEST_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE fb_flags firstbad_static ${CMOCKA_LIBRARY})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endforeach()
