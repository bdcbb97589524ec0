# One set of flags for everything that we compile, and for nothing else: they hang on our targets and do not leak into a project
# that includes us.
#
# fb_warnings   warnings, visibility, sanitizers: for programs that see installed headers alone (examples/)
# fb_flags      that, and the folders of the internal headers

# Flags of this family let the compiler assume that there is no NaN and no Inf, and then delete the checks; the others of it reorder
# sums. A build that finds nothing is worse than none, so it is refused here, again by the compiler in src/scan, and at run time.
string(TOUPPER "${CMAKE_BUILD_TYPE}" fb_type)
get_directory_property(fb_inherited COMPILE_OPTIONS)
string(JOIN " " fb_given ${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${fb_type}} ${fb_inherited})
if(" ${fb_given} " MATCHES " (-Ofast|-ffast-math|-ffinite-math-only|-funsafe-math-optimizations|-fassociative-math) ")
  message(FATAL_ERROR "${CMAKE_MATCH_1} is refused: it lets the compiler assume that there is no NaN and no Inf, or reorder sums, "
    "and so delete or change the checks that firstbad is made of. Take it out of CFLAGS, CMAKE_C_FLAGS or COMPILE_OPTIONS.")
endif()

add_library(fb_warnings INTERFACE)
target_compile_options(fb_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
  # Sums must not depend on the compiler: no fused multiply-add unless the source asks for one.
  -ffp-contract=off -fno-math-errno -fno-common -fvisibility=hidden)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  # A text that does not fit is cut on purpose; gcc warns of the cut, clang does not know the warning.
  target_compile_options(fb_warnings INTERFACE -Wno-format-truncation)
endif()
target_compile_definitions(fb_warnings INTERFACE _GNU_SOURCE)
if(FB_SANITIZE)
  target_compile_options(fb_warnings INTERFACE -fsanitize=${FB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(fb_warnings INTERFACE -fsanitize=${FB_SANITIZE})
endif()
if(FB_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "FB_FUZZ needs clang: configure with CC=clang. Without FB_FUZZ the same drivers replay the saved inputs.")
  endif()
  target_compile_options(fb_warnings INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(fb_warnings INTERFACE -fsanitize=fuzzer-no-link)
endif()

add_library(fb_flags INTERFACE)
target_link_libraries(fb_flags INTERFACE fb_warnings)
target_include_directories(fb_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

set(THREADS_PREFER_PTHREAD_FLAG OFF)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
include(GNUInstallDirs)

# Gives FB_BREAK_<name> to those files of a list that know it, so that a broken build compiles a handful of files and not all; to all
# of them where a header knows it.
function(fb_break_promise)
  if(NOT FB_BREAK)
    return()
  endif()
  set(all OFF)
  file(GLOB_RECURSE headers ${PROJECT_SOURCE_DIR}/src/*.h ${PROJECT_SOURCE_DIR}/cli/*.h)
  foreach(header ${headers})
    file(STRINGS ${header} hits REGEX "FB_BREAK_${FB_BREAK}([^A-Za-z0-9_]|$)")
    if(hits)
      set(all ON)
    endif()
  endforeach()
  foreach(source ${ARGN})
    file(STRINGS ${source} hits REGEX "FB_BREAK_${FB_BREAK}([^A-Za-z0-9_]|$)")
    if(hits OR all)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS FB_BREAK_${FB_BREAK}=1)
    endif()
  endforeach()
endfunction()
