# One set of flags for everything we compile. Files are found by folder: a new source needs no line here.
add_library(fb_flags INTERFACE)
target_compile_options(fb_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
  # Sums must not depend on the compiler: no fused multiply-add unless the source asks for one.
  -ffp-contract=off -fno-math-errno -fno-common -fvisibility=hidden)
target_compile_definitions(fb_flags INTERFACE _GNU_SOURCE)
target_include_directories(fb_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(FB_SANITIZE)
  target_compile_options(fb_flags INTERFACE -fsanitize=${FB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(fb_flags INTERFACE -fsanitize=${FB_SANITIZE})
endif()
if(FB_BREAK)
  target_compile_definitions(fb_flags INTERFACE FB_BREAK_${FB_BREAK}=1)
endif()
find_package(Threads REQUIRED)
