#!/usr/bin/env bash
# Run tests with proton compiled so that misuse of memory ends the process: a use after free, a double free, a read out
# of bounds. The garbage collector runs often meanwhile, as such errors were found in objects that it freed.
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

# Left out: tests that measure memory, since the sanitizer keeps freed memory, and tests of deep nesting, which need more
# stack than there is with it.
exec env LD_PRELOAD="$library" PYTHONPATH="$folder" PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1 \
  "$python" -c 'import gc, sys, pytest; gc.set_threshold(50, 5, 5); sys.exit(pytest.main(sys.argv[1:]))' -p no:cacheprovider \
  -k 'not deep_nesting and not what_comes_on_a_refused_link' "$@"
