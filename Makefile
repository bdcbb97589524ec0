# A thin front for CMake: it knows no source file. `make help` lists what there is.
#
# JOBS   how many things at once (default: as many as there are processors)
# PREFIX where `make install` puts things (default /usr/local; DESTDIR is honoured)

JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local
CMAKE  ?= cmake
SUITES ?=
ARGS   ?=

export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1

.PHONY: all help setup drill test check bench install format tidy clean

all: build/build.ninja
	@$(CMAKE) --build build -j $(JOBS)

# Nothing is downloaded by a plain `make`: where a tool is missing it says what would bring it.
build/build.ninja:
	@command -v $(CMAKE) >/dev/null && command -v ninja >/dev/null || \
	    { echo "make: cmake or ninja is missing; scripts/setup build installs what is needed" >&2; exit 1; }
	@echo "configure build/"
	@$(CMAKE) -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DFB_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX) >build.configure.log 2>&1 || \
	    { cat build.configure.log; rm -f build.configure.log build/build.ninja; exit 1; }
	@rm -f build.configure.log

help:
	@echo "make           build the libraries, firstbad and firstbad-gpt into build/"
	@echo "make drill     set up, build, then train the built-in GPT on several ranks, inject faults, and show what was found"
	@echo "make test      set up, then run every test; ends with 'N passed, N failed' (SUITES='c-gcc cli' runs some of them)"
	@echo "make check     the quick loop for every commit: sanitized unit, property and fault tests, include order, format"
	@echo "make bench     measure against peers and roofs, one table"
	@echo "make install   install to PREFIX ($(PREFIX)); DESTDIR is honoured"
	@echo "make format    rewrite the sources with clang-format"
	@echo "make tidy      clang-tidy over all sources"
	@echo "make clean     remove everything that was built (.venv stays)"

setup:
	@scripts/setup build

# The set-up may bring cmake itself, so that the build is a make of its own, after it. ARGS="--list" and the like go to the drill.
drill:
	@scripts/setup build
	@$(MAKE) --no-print-directory all
	@build/firstbad drill $(ARGS)

test:
	@scripts/setup test
	@scripts/run-tests -j $(JOBS) $(SUITES)

check:
	@scripts/setup test
	@scripts/run-tests -j $(JOBS) check includes format

bench:
	@scripts/setup test
	@$(MAKE) --no-print-directory all
	@scripts/bench $(ARGS)

install: all
	@$(CMAKE) --install build --prefix $(PREFIX)

format:
	@scripts/setup test
	@scripts/check-format --fix

tidy:
	@scripts/setup test
	@scripts/run-tests -j $(JOBS) tidy

clean:
	@echo "remove build/, build-test/"
	@rm -rf build build-test
