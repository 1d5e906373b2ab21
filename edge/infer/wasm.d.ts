// A file of WebAssembly is imported compiled: an isolate may not compile bytes.

declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}

// Its package types the exports of an instance, as other bundlers import it.
declare module "@jsquash/png/codec/pkg/squoosh_png_bg.wasm" {
  const module: WebAssembly.Module;
  export default module;
}
