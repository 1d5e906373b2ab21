#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, nvcc and a python3 that has torch: builds the engine, holds it
# against its reference, trains, provokes faults and measures. Each part has a time limit (seconds
# times LIMITS_TIMES) and a log in $OUT; one that fails does not end the others. README.md has the rest.
#   bash test/native/gpu/run.sh [part …]
cd "$(dirname "$0")/../../.." || exit 1
OUT=${OUT:-/tmp/gpu-out}; mkdir -p "$OUT"
bin=/tmp/gpu-kit-bin; mkdir -p $bin
export DEVICE=${DEVICE:-cuda} CI=true
export ENGINE_DEVICE=$DEVICE
if [ -f .gpu-kit/node.xz ]; then
  [ -x $bin/node ] || { xz -dc -T0 .gpu-kit/node.xz > $bin/node && chmod +x $bin/node; }
  [ -d node_modules/vitest ] || tar -xJf .gpu-kit/packages.tar.xz
  export PATH=$bin:$PATH
else
  export PATH=$PWD/node_modules/.bin:$PATH
fi

vitest() { node node_modules/vitest/vitest.mjs run --config test/native/gpu/vitest.config.ts "$@"; }
build() {
  node -e 'import("./edge/local/engine.mjs").then((m) => m.ensureEngine("engine", { root: process.cwd() }))'
  tail -n 3 native/build/build.log
  [ -f native/build/build-cuda.log ] && grep -n -i -A5 error native/build/build-cuda.log | head -n 40
  node -e 'import("./native/load.ts").then(({ loadEngine }) => {
    const loaded = loadEngine(); console.log(JSON.stringify("native" in loaded ? loaded.native.describe() : loaded)); })'
}
# Both parts of the second package are there: onnxruntime with its provider, beside what is installed.
infer() {
  if cat /tmp/gpu-kit-infer/infer.tar.xz.1 /tmp/gpu-kit-infer/infer.tar.xz.2 > /tmp/infer.tar.xz 2>/dev/null; then
    rm -rf node_modules/onnxruntime-node && tar -xJf /tmp/infer.tar.xz
    export VANTAGE_ENCODER=models/encoder.onnx
  fi
  LD_LIBRARY_PATH=$(python3 -c '
import glob, os, sys
print(":".join(glob.glob(os.path.join(sys.prefix, "lib/python3*/site-packages/nvidia/*/lib"))))'):${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH
  node test/native/gpu/infer.ts
}
part() { # name, seconds, command
  local name=$1 seconds=$(( $2 * ${LIMITS_TIMES:-1} )) began=$SECONDS
  echo "== $name"
  ( set -o pipefail; export -f vitest build infer
    timeout -k 5 "$seconds" bash -c "$3" 2>&1 | tee "$OUT/$name.log" | tail -n "${LINES_SHOWN:-25}" )
  echo "== $name: exit $?, $((SECONDS - began)) s"
}
machine='nvidia-smi; nvcc --version | tail -n 2; nproc; python3 -c "import torch; print(torch.__version__, torch.version.cuda)"'
# Configurations by what they answer first: all do not fit into the time.
bench="node test/bench/engine.ts --device $DEVICE --python python3 --only 'detection, det26n, 640, 64' \
  --only 'detection, det26n, 640, 8, bf16' --only 'segmentation, det26n, 640, 64, bf16' \
  --only 'detection, det26m, 640, 64, bf16'"
run() { case $1 in
  machine) part machine 20 "$machine";;
  build)   part build 200 build;;
  golden)  part golden 150 'vitest test/native/golden';;
  gpu)     part gpu 150 'vitest test/native/recorded test/native/rendering -t GPU';;
  train)   part train 120 'node test/native/gpu/train.ts';;
  faults)  part faults 120 'node test/native/gpu/faults.ts';;
  bench)   part bench 120 "$bench";;
  infer)   part infer 120 infer;;
  all)     part all 240 'vitest test/native';;
  *) echo "there is no part $1"; exit 2;;
esac; }
if [ $# -gt 0 ]; then
  for one in "$@"; do run "$one"; done
  exit
fi
run machine
run build
# What measures no time runs at once.
for one in golden gpu train; do run $one > "$OUT/$one.txt" 2>&1 & done
wait
cat "$OUT"/{train,gpu,golden}.txt; rm -f "$OUT"/{train,gpu,golden}.txt
run bench
run faults
