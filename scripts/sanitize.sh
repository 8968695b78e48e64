#!/usr/bin/env bash
# Runs tests with proton compiled so that it ends the process where it misuses memory: a use after free, a second free, a
# read beyond an end. The garbage collector runs often meanwhile, as what it lets go of is where such was found.
#
#   scripts/sanitize.sh PYTHON FOLDER [argument of pytest]...
set -euo pipefail

python=$1 folder=$2
shift 2

library=$(gcc -print-file-name=libasan.so)
if [ ! -e "$library" ]; then
  echo "the address sanitizer of gcc is needed: apt-get install gcc libasan8" >&2
  exit 1
fi

if [ ! -e "$folder/.made" ]; then
  version=$("$python" -c 'from importlib.metadata import version; print(version("python-qpid-proton"))')
  rm -rf "$folder"
  CFLAGS='-fsanitize=address -g -O1 -fno-omit-frame-pointer' LDFLAGS='-fsanitize=address' \
    "$python" -m pip --quiet --disable-pip-version-check install --no-binary python-qpid-proton --no-cache-dir --no-deps \
    --target "$folder" "python-qpid-proton==$version"
  touch "$folder/.made"
fi

# What measures memory fails, as the sanitizer keeps what was freed; and what nests as deep as it can needs more stack.
exec env LD_PRELOAD="$library" PYTHONPATH="$folder" PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1 \
  "$python" -c 'import gc, sys, pytest; gc.set_threshold(50, 5, 5); sys.exit(pytest.main(sys.argv[1:]))' -p no:cacheprovider \
  -k 'not deep_nesting and not what_comes_on_a_refused_link' "$@"
