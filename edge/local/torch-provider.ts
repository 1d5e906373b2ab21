// What `npm run engine -- install --cuda` says of onnxruntime's CUDA provider once it is there.

/** What `gpu-node/onnx/provider-probe-main.ts` prints. */
export interface ProviderAnswer {
  device: "cpu" | "cuda";
  problem: string | null;
  isInstalled: boolean;
  libraries: { found: number; missing: string[] };
}

/** NVIDIA's driver brings it, and no wheel does. */
const DRIVER = "libcuda.so.1";

/** One line for the operator, and whether all is there that an install can bring. */
export function providerText(answer: ProviderAnswer): { text: string; isWhole: boolean } {
  const { device, problem, isInstalled, libraries } = answer;
  const found = `all ${libraries.found} libraries that it needs are found`;
  if (device === "cuda")
    return {
      text: `onnxruntime's CUDA provider works: ${found}, and a model ran on the GPU.`,
      isWhole: true,
    };
  const onCpu = "models run on the CPU here, as one just did.";
  if (!isInstalled)
    return {
      text: `onnxruntime's CUDA provider has no wheel for this Python (3.11 to 3.14 have): ${onCpu}`,
      isWhole: true,
    };
  const missing = libraries.missing.filter((name) => name !== DRIVER);
  if (missing.length === 0 && libraries.missing.length > 0)
    return {
      text:
        `onnxruntime's CUDA provider is whole: ${found}, but NVIDIA's driver (${DRIVER}), which ` +
        `this machine lacks: ${onCpu}`,
      isWhole: true,
    };
  return {
    text: `onnxruntime does not use the GPU: ${problem}; ${onCpu}`,
    isWhole: missing.length === 0,
  };
}
