# Each tests/unit/test_*.c, tests/property/test_*.c and tests/fault/test_*.c is one cmocka program against the static library, with
# the internal headers in reach. Those that mention threads are labelled so, and run under ThreadSanitizer too. Each
# tests/mpi/test_*.c is a program of its own manner, run on 4 ranks, that ends with "N passed, N failed".
find_library(CMOCKA_LIBRARY cmocka REQUIRED)
file(GLOB FB_TEST_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/tests/unit/test_*.c ${PROJECT_SOURCE_DIR}/tests/property/test_*.c ${PROJECT_SOURCE_DIR}/tests/fault/test_*.c)
fb_break_promise(${FB_TEST_SOURCES})

# What tests share: every other source beside them, such as the simulated system of tests/fault. From an archive, so that a program
# takes what it uses.
file(GLOB FB_TEST_SHARED CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/tests/unit/*.c ${PROJECT_SOURCE_DIR}/tests/property/*.c ${PROJECT_SOURCE_DIR}/tests/fault/*.c
  ${PROJECT_SOURCE_DIR}/tests/support/*.c)
list(FILTER FB_TEST_SHARED EXCLUDE REGEX "/test_[^/]*$")
set(FB_TEST_LIBRARY "")
if(FB_TEST_SHARED)
  add_library(fb_test_shared STATIC ${FB_TEST_SHARED})
  target_include_directories(fb_test_shared PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(fb_test_shared PRIVATE fb_flags)
  set(FB_TEST_LIBRARY fb_test_shared)
endif()

foreach(source ${FB_TEST_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE fb_flags ${FB_TEST_LIBRARY} firstbad_static ${CMOCKA_LIBRARY})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  file(STRINGS ${source} threads REGEX "pthread_|threads")
  if(threads)
    set(folder "${folder};threads")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${folder}" TIMEOUT 300 SKIP_RETURN_CODE 77)
endforeach()

file(GLOB FB_MPI_TEST_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/mpi/test_*.c)
if(FB_MPI_TEST_SOURCES AND FB_GPT)
  find_package(MPI REQUIRED COMPONENTS C)
  fb_break_promise(${FB_MPI_TEST_SOURCES})
  foreach(source ${FB_MPI_TEST_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE fb_flags firstbad_static MPI::MPI_C)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} -n 4 --oversubscribe $<TARGET_FILE:${name}> WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS mpi TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
  endforeach()
endif()

# Fuzz drivers, tests/fuzz/fuzz_*.c. With FB_FUZZ libFuzzer drives them; without, a driver that replays tests/fuzz/corpus/<name>/*.
file(GLOB FB_FUZZ_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
add_custom_target(fuzz_drivers)
foreach(source ${FB_FUZZ_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" corpus ${name})
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE fb_flags firstbad_static)
  add_dependencies(fuzz_drivers ${name})
  # LLVMFuzzerTestOneInput has no header to declare it.
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(FB_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.c)
    add_test(NAME ${name} COMMAND ${name} tests/fuzz/corpus/${corpus} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
  endif()
endforeach()

# Programs that write what the tests of the tool read: tests/cli/fixtures/*.c, found by the scripts as $FIRSTBAD_BUILD/tests/NAME.
file(GLOB FB_CLI_FIXTURES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cli/fixtures/*.c)
foreach(source ${FB_CLI_FIXTURES})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE fb_flags firstbad_static)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endforeach()
